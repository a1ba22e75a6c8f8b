package process

import "os"

// Directory is where the instances that outlive an engine are found: their guards keep their
// files there. One engine has it at a time.
type Directory struct {
	path      string
	survivors Survivors
	permanent bool     // on the disk of the state file
	lock      *os.File // the directory itself
}

// Path returns the directory for Config.AdoptDir. It is "" for nil.
func (d *Directory) Path() string {
	if d == nil {
		return ""
	}
	return d.path
}

// Survivors returns the instances that the directory had when it was opened.
func (d *Directory) Survivors() Survivors {
	if d == nil {
		return nil
	}
	return d.survivors
}

// Close releases the directory for the next engine, and removes it if no instance needs it. It
// does not wait for the disk of the state file.
func (d *Directory) Close() {
	if d == nil {
		return
	}
	if !d.permanent {
		_ = os.Remove(d.path) // not with files of guards
	}
	_ = d.lock.Close()
}
