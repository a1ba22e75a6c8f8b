package module

// Info describes a metered module.
type Info struct {
	Overhead int64
	NoImage  string
}

// Meter returns a module with metered code and no other changes.
func Meter(wasm []byte) ([]byte, Info, error) {
	m, err := Parse(wasm)
	if err != nil {
		return nil, Info{}, err
	}
	all, info, err := m.meter()
	if err != nil {
		return nil, Info{}, err
	}
	return all.module(len(wasm)), Info{info.overhead, info.noImage}, nil
}

// Rewrite parses and rewrites a module.
func Rewrite(wasm []byte) (*Rewritten, error) {
	m, err := Parse(wasm)
	if err != nil {
		return nil, err
	}
	return m.Rewrite()
}
