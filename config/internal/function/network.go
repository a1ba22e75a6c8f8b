package function

import (
	"fmt"
	"math/big"
	"net"

	"github.com/apparentlymart/go-cidr/cidr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/gocty"
)

// cidrHost returns the address with a number in a network:
// cidrhost("10.0.0.0/24", 5) is "10.0.0.5".
func cidrHost(args []cty.Value) (cty.Value, error) {
	network, err := parsePrefix(args[0])
	if err != nil {
		return cty.NilVal, err
	}
	number, err := whole(args, 1)
	if err != nil {
		return cty.NilVal, err
	}
	ip, err := cidr.HostBig(network, number)
	if err != nil {
		return cty.NilVal, function.NewArgError(1, err)
	}
	return cty.StringVal(ip.String()), nil
}

// cidrSubnet returns a part of a network:
// cidrsubnet("10.0.0.0/8", 8, 2) is "10.2.0.0/16".
func cidrSubnet(args []cty.Value) (cty.Value, error) {
	network, err := parsePrefix(args[0])
	if err != nil {
		return cty.NilVal, err
	}
	var bits int
	if gocty.FromCtyValue(args[1], &bits) != nil || bits < 0 || bits > 128 {
		return cty.NilVal, function.NewArgErrorf(1, "bits must be a whole number from 0 to 128")
	}
	number, err := whole(args, 2)
	if err != nil {
		return cty.NilVal, err
	}
	part, err := cidr.SubnetBig(network, bits, number)
	if err != nil {
		return cty.NilVal, function.NewArgError(2, err)
	}
	return cty.StringVal(part.String()), nil
}

func parsePrefix(v cty.Value) (*net.IPNet, error) {
	_, network, err := net.ParseCIDR(v.AsString())
	if err != nil {
		return nil, function.NewArgError(0, fmt.Errorf("%q is not a network such as 10.0.0.0/8", v.AsString()))
	}
	return network, nil
}

// maxBits bounds a number that counts addresses.
const maxBits = 128

func whole(args []cty.Value, i int) (*big.Int, error) {
	f := args[i].AsBigFloat()
	if !f.IsInt() || f.MantExp(nil) > maxBits {
		return nil, function.NewArgErrorf(i, "number must be a whole number of at most %d bits", maxBits)
	}
	n, _ := f.Int(nil)
	return n, nil
}
