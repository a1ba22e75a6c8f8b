package beatprobe

// Receive takes a datagram.
func (r *Registry) Receive(packet []byte) { r.receive(packet) }
