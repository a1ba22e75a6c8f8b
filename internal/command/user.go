package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// account is the user that a command runs as.
type account struct {
	name, home string
	credential *syscall.Credential // nil: the engine's user and groups
}

// ErrLookup is wrapped by an error of Plan if users, groups or programs cannot be looked up now. This machine is at fault: it may
// lack descriptors, which package user does not report, or a disk fails. If the file of users does not exist or must not be read,
// there are no users, which is another error.
var ErrLookup = errors.New("cannot be looked up now")

// lookupUser parses "", "name", "uid", "user:group" or "uid:gid". A user of the system gets its supplementary groups. A number that
// is not a user needs a group: guessing one would not be safe.
func lookupUser(text string) (account, error) {
	if text == "" {
		return account{name: os.Getenv("USER"), home: os.Getenv("HOME")}, nil
	}
	name, group, grouped := strings.Cut(text, ":")
	acct, known, err := lookupAccount(name)
	if err != nil {
		return account{}, err
	}
	if grouped {
		acct.credential.Gid, err = lookupGroup(group)
	} else if !known {
		err = fmt.Errorf("there is no user %s on this system, so its group is required: write \"%s:gid\"", name, name)
	}
	if err != nil {
		return account{}, err
	}
	acct.dropOwnCredential()
	return acct, nil
}

// lookupAccount looks up a user by name, then by number. A number may be unknown to the system.
func lookupAccount(name string) (acct account, known bool, err error) {
	uid, numberErr := number(name)
	u, err := user.Lookup(name)
	if isUnknown(err) && numberErr == nil {
		u, err = user.LookupId(name)
	}
	switch {
	case err == nil:
		acct, err = accountOf(u)
		return acct, true, err
	case !isUnknown(err): // a number may have groups
		return account{}, false, unread(err)
	case numberErr == nil:
		return account{name: name, credential: &syscall.Credential{Uid: uid}}, false, nil
	}
	return account{}, false, fmt.Errorf("there is no user %q on this system", name)
}

// unread returns the error of Plan for an error of reading the users or groups.
func unread(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("users cannot be read by this user: %w", err)
	}
	return fmt.Errorf("users %w: %w", ErrLookup, err)
}

// isUnknown reports whether an error means that the user or group does not exist, or that there are no users at all, as in a
// minimal container image.
func isUnknown(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.As(err, new(user.UnknownUserError)) || errors.As(err, new(user.UnknownUserIdError)) ||
		errors.As(err, new(user.UnknownGroupError))
}

// accountOf returns the account of a user of the system.
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
	if err != nil && !isUnknown(err) {
		return account{}, unread(fmt.Errorf("groups of user %s: %w", u.Username, err))
	}
	groups := make([]uint32, 0, len(ids))
	for _, id := range ids {
		if n, err := number(id); err == nil {
			groups = append(groups, n)
		}
	}
	return account{u.Username, u.HomeDir, &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}}, nil
}

func lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	switch {
	case err == nil:
		return number(g.Gid)
	case !isUnknown(err):
		return 0, unread(err)
	}
	gid, err := number(name)
	if err != nil {
		return 0, fmt.Errorf("there is no group %q on this system", name)
	}
	return gid, nil
}

func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// dropOwnCredential clears the credential if the engine already runs as that user and is not root: setting the same user and groups
// would need privileges.
func (a *account) dropOwnCredential() {
	euid := os.Geteuid()
	if euid != 0 && int(a.credential.Uid) == euid && int(a.credential.Gid) == os.Getegid() {
		a.credential = nil
	}
}
