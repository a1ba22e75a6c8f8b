package module

// Info is what Meter knows of a module.
type Info struct {
	Overhead int64
	NoImage  string
}

// Meter returns a module with its code metered, which is otherwise as it was.
func Meter(wasm []byte) ([]byte, Info, error) {
	all, info, err := meter(wasm)
	if err != nil {
		return nil, Info{}, err
	}
	return all.module(wasm), Info{info.overhead, info.noImage}, nil
}
