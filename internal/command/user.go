package command

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// account is whom a command runs as.
type account struct {
	name, home string
	credential *syscall.Credential // nil: the engine's own user and groups
}

// lookUser reads "", "name", "uid", "user:group" or "uid:gid". A user that the
// system knows gets the supplementary groups it has there. A number that is
// unknown needs a group, because there is none that could be guessed safely.
func lookUser(text string) (account, error) {
	if text == "" {
		return account{name: os.Getenv("USER"), home: os.Getenv("HOME")}, nil
	}
	name, group, grouped := strings.Cut(text, ":")
	who, known, err := find(name)
	if err != nil {
		return account{}, err
	}
	if grouped {
		who.credential.Gid, err = findGroup(group)
	} else if !known {
		err = fmt.Errorf("user %s is not known to the system, so its group must be given: \"%s:gid\"", name, name)
	}
	if err != nil {
		return account{}, err
	}
	who.dropOwn()
	return who, nil
}

// find looks a user up by name, then by number. A number need not be known.
func find(name string) (who account, known bool, err error) {
	uid, numberErr := number(name)
	u, err := user.Lookup(name)
	if err != nil && numberErr == nil {
		u, err = user.LookupId(name)
	}
	switch {
	case err == nil:
		who, err = accountOf(u)
		return who, true, err
	case numberErr == nil:
		return account{name: name, credential: &syscall.Credential{Uid: uid}}, false, nil
	}
	return account{}, false, fmt.Errorf("user %q is not known to the system", name)
}

// accountOf reads the numbers of a user that the system knows.
func accountOf(u *user.User) (account, error) {
	uid, err := number(u.Uid)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w", u.Username, err)
	}
	gid, err := number(u.Gid)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w", u.Username, err)
	}
	ids, err := u.GroupIds()
	if err != nil {
		return account{}, fmt.Errorf("groups of user %s: %w", u.Username, err)
	}
	groups := make([]uint32, 0, len(ids))
	for _, id := range ids {
		if n, err := number(id); err == nil {
			groups = append(groups, n)
		}
	}
	return account{u.Username, u.HomeDir, &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}}, nil
}

func findGroup(name string) (uint32, error) {
	if g, err := user.LookupGroup(name); err == nil {
		return number(g.Gid)
	}
	gid, err := number(name)
	if err != nil {
		return 0, fmt.Errorf("group %q is not known to the system", name)
	}
	return gid, nil
}

func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// dropOwn forgets the credential of an engine that is that user already and not
// root: to change nothing needs no privilege, to set groups does.
func (a *account) dropOwn() {
	euid := os.Geteuid()
	if euid != 0 && int(a.credential.Uid) == euid && int(a.credential.Gid) == os.Getegid() {
		a.credential = nil
	}
}
