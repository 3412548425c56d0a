"""What a device can reach at best, from reports, data sheets and measurements."""
