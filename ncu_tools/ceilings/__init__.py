"""Peak rates of a device, from reports, data sheets and measurements."""
