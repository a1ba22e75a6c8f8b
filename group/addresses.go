package group

import "net"

// MembersAt returns the members that have an address, alone or with their Port, as in 10.0.0.7,
// 10.0.0.7:80 and [fd00::7]:80, sorted by name. The caller must not change them. The first call
// for a View makes an index of all its members.
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

// addresses returns the members of a View by address. They are made at the first MembersAt.
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
