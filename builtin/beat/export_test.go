package beatprobe

// The bounds of datagrams that change nothing.
const (
	RejectedRate  = rejectedRate
	RejectedBurst = rejectedBurst
)

// Receive takes a datagram.
func (r *Registry) Receive(packet []byte) { r.receive(packet) }

// MaxDatagram is maxDatagram.
const MaxDatagram = maxDatagram
