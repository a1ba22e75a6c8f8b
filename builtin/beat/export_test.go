package beatprobe

// The limits for rejected datagrams.
const (
	RejectedRate  = rejectedRate
	RejectedBurst = rejectedBurst
)

// Take processes a datagram.
func (r *Registry) Take(packet []byte) { r.receive(packet) }

// MaxDatagram is maxDatagram.
const MaxDatagram = maxDatagram
