package fleet

// The values of Resume.
const (
	Trust  = trust
	Verify = verify
	Forget = forget
)

// Apply replaces the targets of the fleet: all, or none if it returns an error. It returns immediately; Run does the
// work.
func (f *Fleet) Apply(t Targets) error {
	commit, err := f.Plan(t)
	if err == nil {
		commit()
	}
	return err
}
