//! Threads, admission, members and closing (sections 6.1, 6.2, 6.5).
