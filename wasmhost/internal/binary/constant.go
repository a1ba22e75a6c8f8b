package binary

import "fmt"

// The instructions of constant expressions (specification 2, sections 3.3.8 and 5.4).
const (
	OpEnd       = 0x0b
	OpGlobalGet = 0x23
	OpI32Const  = 0x41
	opI64Const  = 0x42
	opF32Const  = 0x43
	OpF64Const  = 0x44
	OpRefNull   = 0xd0
	OpRefFunc   = 0xd2
	OpVector    = 0xfd // and VectorConst

	VectorConst = 12
)

// Constant reads what an instruction from OpI32Const to OpF64Const, or OpRefNull, pushes, and
// returns it for OpI32Const. Other instructions are an error.
func (r *Reader) Constant(op byte) (i32 int32) {
	switch op {
	case OpI32Const:
		i32 = int32(r.signed(5))
	case opI64Const:
		r.signed(10)
	case opF32Const:
		r.Bytes(4)
	case OpF64Const:
		r.Bytes(8)
	case OpRefNull:
		r.RefType()
	default:
		r.Fail(fmt.Errorf("instruction %#x is not allowed in a constant expression", op))
	}
	return i32
}
