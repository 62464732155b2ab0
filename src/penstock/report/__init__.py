"""What people look at: the demo, the doctor, and the papers' figures."""
