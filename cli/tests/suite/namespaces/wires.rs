//! Network namespaces, and the veth pairs between them. Nothing of it appears in the namespace of the machine.

use std::io::Write;
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes every namespace of this process another, and every subnet.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network namespace. Removed when dropped; what still runs in it keeps it alive to its own end.
pub struct Namespace {
    /// Its name, for `ip netns`.
    pub name: String,
}

/// Runs `ip`; what it complained of, if it failed.
fn try_ip(arguments: &str) -> Result<(), String> {
    match Command::new("ip").args(arguments.split_whitespace()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn ip(arguments: &str) {
    try_ip(arguments).unwrap_or_else(|error| panic!("ip {arguments}: {error}"));
}

impl Namespace {
    fn make() -> Result<Self, String> {
        let name = format!("kwoon-{}-{}", id(), NEXT.fetch_add(1, Ordering::Relaxed));
        try_ip(&format!("netns add {name}"))?;
        let made = Self { name };
        try_ip(&format!("-n {} link set lo up", made.name))?;
        // Where there are no veth pairs, that is found out before anything is tested.
        try_ip(&format!("-n {} link add probe type veth peer name other", made.name))?;
        try_ip(&format!("-n {} link del probe", made.name))?;
        Ok(made)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = try_ip(&format!("netns del {}", self.name));
    }
}

/// New namespaces; nothing if none can be made here, which is said. Where they must be, as in CI, that is an error.
pub fn namespaces<const N: usize>() -> Option<[Namespace; N]> {
    let made: Result<Vec<_>, _> = (0..N).map(|_| Namespace::make()).collect();
    match made {
        Ok(made) => made.try_into().ok(),
        Err(error) => {
            let must = std::env::var_os("KWOON_NAMESPACES_REQUIRED").is_some_and(|value| value == "1");
            assert!(!must, "no network namespace with wires can be made: {error}");
            let message =
                format!("skipped: no network namespace with wires can be made ({error}); root can, with iproute2\n");
            // Not by a macro, whose output a test that passes does not show.
            let _ = std::io::stderr().write_all(message.as_bytes());
            None
        }
    }
}

/// A wire between two namespaces, of which each end has an address of its own subnet.
pub struct Wire {
    ends: [End; 2],
}

struct End {
    namespace: String,
    interface: String,
    address: String,
}

impl End {
    fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.namespace));
    }
}

impl Wire {
    /// Joins two namespaces.
    pub fn between(one: &Namespace, other: &Namespace) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let interface = format!("wire{number}");
        ip(&format!("link add {interface} netns {} type veth peer name {interface} netns {}", one.name, other.name));
        let ends = [(one, 1), (other, 2)].map(|(namespace, last)| End {
            namespace: namespace.name.clone(),
            interface: interface.clone(),
            address: format!("10.77.{}.{last}", number % 256),
        });
        for end in &ends {
            end.ip(&format!("addr add {}/24 dev {interface}", end.address));
        }
        let wire = Self { ends };
        wire.plug(true);
        wire
    }

    /// Plugs both ends in, or pulls them out.
    pub fn plug(&self, is_in: bool) {
        for end in &self.ends {
            end.ip(&format!("link set {} {}", end.interface, if is_in { "up" } else { "down" }));
            if is_in {
                // Where multicasts go, which elsewhere follows from the default route.
                end.ip(&format!("route replace 224.0.0.0/4 dev {}", end.interface));
            }
        }
    }

    /// Gives an end another address in place of the one it has.
    pub fn renumber(&mut self, end: usize) {
        let end = &mut self.ends[end];
        let (subnet, last) = end.address.rsplit_once('.').unwrap();
        let new = format!("{subnet}.{}", last.parse::<u32>().unwrap() + 10);
        // One after the other: the second of a subnet goes with the first.
        end.ip(&format!("addr del {}/24 dev {}", end.address, end.interface));
        end.ip(&format!("addr add {new}/24 dev {}", end.interface));
        end.address = new;
    }

    /// From here on every packet goes astray though both ends are up: each is sent to a station that does not exist.
    pub fn swallow(&self) {
        for (here, there) in [(0, 1), (1, 0)] {
            let (here, there) = (&self.ends[here], &self.ends[there].address);
            here.ip(&format!("neigh replace {there} lladdr 02:00:00:00:00:99 dev {} nud permanent", here.interface));
        }
    }

    /// Makes the wire slow, where the system can.
    pub fn throttle(&self) {
        for end in &self.ends {
            let shape = "root tbf rate 20mbit burst 32kbit latency 400ms";
            let arguments = format!("-n {} qdisc add dev {} {shape}", end.namespace, end.interface);
            let _ = Command::new("tc").args(arguments.split_whitespace()).output();
        }
    }
}
