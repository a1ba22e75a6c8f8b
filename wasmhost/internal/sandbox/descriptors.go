package sandbox

// add gives a connection a new descriptor.
func (c *call) add(s *socket) int {
	fd := c.instance.nextFD
	c.instance.nextFD++
	c.addAs(fd, s)
	return int(fd)
}

// addAs gives a connection a descriptor that it had before.
func (c *call) addAs(fd int32, s *socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sockets == nil {
		c.sockets = make(map[int32]*socket)
	}
	c.sockets[fd] = s
	if c.isOver() {
		_ = s.conn.SetDeadline(past()) // an error means that it is closed
	}
}

// remove takes a connection from the guest.
func (c *call) remove(fd int32) (*socket, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.sockets[fd]
	delete(c.sockets, fd)
	if ok && s == c.included {
		c.included = nil
	}
	return s, ok
}

// finish logs the line and closes the connections that the guest has left open.
func (c *call) finish() {
	c.endLine()
	c.mu.Lock()
	open := c.sockets
	c.sockets = nil
	c.mu.Unlock()
	for _, s := range open {
		s.close()
	}
}

// setDeadline calls set, which sets a deadline of a connection, unless the call is over:
// then interrupt has set them all. An error of set means that the connection is closed.
func (c *call) setDeadline(set func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isOver() {
		_ = set()
	}
}
