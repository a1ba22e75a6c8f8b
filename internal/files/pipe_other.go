//go:build !unix

package files

// wait does nothing: reading a pipe waits for its writer.
func (p *pipe) wait() error { return nil }
