//! Agents (section 4) and the contract identity.
