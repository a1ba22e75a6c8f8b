package beatprobe

// The bounds of datagrams that change nothing.
const (
	RejectedRate  = rejectedRate
	RejectedBurst = rejectedBurst
)

// Take takes a datagram.
func (r *Registry) Take(packet []byte) { r.receive(packet) }

// MaxDatagram is maxDatagram.
const MaxDatagram = maxDatagram
