package sondecaddy

import (
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

var (
	_ caddy.Provisioner           = (*Upstreams)(nil)
	_ caddy.CleanerUpper          = (*Upstreams)(nil)
	_ reverseproxy.UpstreamSource = (*Upstreams)(nil)
	_ caddyfile.Unmarshaler       = (*Upstreams)(nil)
)

// UnmarshalCaddyfile implements caddyfile.Unmarshaler:
//
//	dynamic sonde [<servers...>] {
//		http [<path>] {
//			path          <path>
//			port          <port>
//			scheme        http|https
//			header        <name> <value>
//			status        <statuses...>
//			body_contains <text>
//		}
//		period            <duration>
//		timeout           <duration>
//		success_threshold <number>
//		failure_threshold <number>
//		weight            <server> <weight>
//		panic             <share>
//		quorum            <number>
//		slow_start        <duration>
//
//		follow <url> <group>
//		token  <token>
//	}
func (u *Upstreams) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of the module
	u.Servers = d.RemainingArgs()
	for d.NextBlock(0) {
		if err := u.unmarshalSetting(d); err != nil {
			return err
		}
	}
	return nil
}

func (u *Upstreams) unmarshalSetting(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "http":
		return u.unmarshalHTTP(d)
	case "period":
		return duration(d, &u.Period)
	case "timeout":
		return duration(d, &u.Timeout)
	case "slow_start":
		return duration(d, &u.SlowStart)
	case "success_threshold":
		return number(d, &u.SuccessThreshold, 1, 1<<31-1)
	case "failure_threshold":
		return number(d, &u.FailureThreshold, 1, 1<<31-1)
	case "quorum":
		return number(d, &u.Quorum, 0, 1<<31-1)
	case "panic":
		return text(d, &u.Panic)
	case "weight":
		return u.unmarshalWeight(d)
	case "follow":
		u.Follow = &Follow{}
		if !d.Args(&u.Follow.URL, &u.Follow.Group) || d.NextArg() {
			return d.ArgErr()
		}
		return nil
	case "token":
		if u.Follow == nil {
			return d.Err("token must come after follow")
		}
		return text(d, &u.Follow.Token)
	}
	return d.Errf("unknown setting %q", d.Val())
}

func (u *Upstreams) unmarshalWeight(d *caddyfile.Dispenser) error {
	var server string
	if !d.Args(&server) {
		return d.ArgErr()
	}
	if u.Weights == nil {
		u.Weights = map[string]int{}
	}
	weight := 0
	if err := number(d, &weight, 0, 256); err != nil {
		return err
	}
	u.Weights[server] = weight
	return nil
}

func (u *Upstreams) unmarshalHTTP(d *caddyfile.Dispenser) error {
	u.HTTP = &HTTP{}
	if d.NextArg() {
		u.HTTP.Path = d.Val()
		if d.NextArg() {
			return d.ArgErr()
		}
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		var err error
		switch d.Val() {
		case "path":
			err = text(d, &u.HTTP.Path)
		case "port":
			err = number(d, &u.HTTP.Port, 1, 1<<16-1)
		case "scheme":
			err = text(d, &u.HTTP.Scheme)
		case "body_contains":
			err = text(d, &u.HTTP.BodyContains)
		case "status":
			if u.HTTP.Status = d.RemainingArgs(); len(u.HTTP.Status) == 0 {
				err = d.ArgErr()
			}
		case "header":
			var name, value string
			if !d.Args(&name, &value) || d.NextArg() {
				return d.ArgErr()
			}
			if u.HTTP.Headers == nil {
				u.HTTP.Headers = map[string][]string{}
			}
			u.HTTP.Headers[name] = append(u.HTTP.Headers[name], value)
		default:
			err = d.Errf("unknown setting %q of http", d.Val())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// text reads the only argument of a setting.
func text(d *caddyfile.Dispenser, to *string) error {
	if !d.Args(to) || d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// number reads the only remaining argument of a setting, in bounds.
func number[T int | int32 | uint16](d *caddyfile.Dispenser, to *T, least, most int) error {
	var argument string
	if err := text(d, &argument); err != nil {
		return err
	}
	n, err := strconv.Atoi(argument)
	if err != nil || n < least || n > most {
		return d.Errf("%q is not a number from %d to %d", argument, least, most)
	}
	*to = T(n)
	return nil
}

// duration reads the only argument of a setting.
func duration(d *caddyfile.Dispenser, to *caddy.Duration) error {
	var argument string
	if err := text(d, &argument); err != nil {
		return err
	}
	parsed, err := caddy.ParseDuration(argument)
	if err != nil || parsed <= 0 || parsed > 8784*time.Hour {
		return d.Errf("%q is not a duration such as 500ms or 10s", argument)
	}
	*to = caddy.Duration(parsed)
	return nil
}
