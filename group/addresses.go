package group

import "net"

// MembersAt returns the members with an address, sorted by name. The address may include the member's Port, as in 10.0.0.7,
// 10.0.0.7:80 and [fd00::7]:80. The caller must not change the members. The first call for a View indexes all its members.
func (v *View) MembersAt(address string) []*Member {
	index := v.addresses()
	if found := index[address]; len(found) > 0 || address == "" {
		return found
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	var found []*Member
	for _, m := range index[host] {
		if m.HostPort() == address {
			found = append(found, m)
		}
	}
	return found
}

// addresses returns the members of a View by address. The first call builds the index.
func (v *View) addresses() map[string][]*Member {
	v.indexOnce.Do(func() {
		v.byAddress = make(map[string][]*Member, v.Total())
		for m := range v.Members() {
			if m.Address != "" {
				v.byAddress[m.Address] = append(v.byAddress[m.Address], m)
			}
		}
	})
	return v.byAddress
}
