package reach

import (
	"errors"
	"net/netip"
	"testing"
)

func TestNever(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.88.1.7")}
	for address, allowed := range map[string]bool{
		"10.88.1.8": true, "192.0.2.1": true, "2001:db8::1": true,
		"127.0.0.1": false, "127.1.2.3": false, "::1": false, "::ffff:127.0.0.1": false,
		"169.254.169.254": false, "fe80::1": false, "::ffff:169.254.169.254": false,
		"0.0.0.0": false, "::": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false,
		"10.88.1.7": false, "::ffff:10.88.1.7": false,
	} {
		// A rule that allows everything opens none of them.
		for _, rules := range []Rules{nil, {{}}, {{Hosts: []string{"0.0.0.0/0", "::/0"}}}} {
			err := rules.Check(Target{Protocol: "iscsi", Host: "server", Port: 3260}, netip.MustParseAddr(address), own)
			if (err == nil) != allowed || err != nil && !errors.Is(err, ErrRefused) {
				t.Errorf("%s with %+v: %v", address, rules, err)
			}
		}
	}
}

func TestRules(t *testing.T) {
	rules := Rules{
		{Protocols: []string{"iscsi"}, Hosts: []string{"10.1.0.0/16", "san.example.com"}, Ports: []int{3260}},
		{Protocols: []string{"rbd"}, Pools: []string{"vms"}},
		{Protocols: []string{"http"}, Hosts: []string{"*.images.example.com", "2001:db8::5"}},
	}
	for _, c := range []struct {
		target  Target
		address string
		allowed bool
	}{
		{Target{"iscsi", "10.1.2.3", 3260, ""}, "10.1.2.3", true},
		{Target{"iscsi", "anything", 3260, ""}, "10.1.2.3", true},
		{Target{"iscsi", "10.2.2.3", 3260, ""}, "10.2.2.3", false},
		{Target{"iscsi", "10.1.2.3", 3261, ""}, "10.1.2.3", false},
		{Target{"iscsi", "SAN.example.com.", 3260, ""}, "192.0.2.9", true},
		{Target{"iscsi", "san.example.com.evil.example", 3260, ""}, "192.0.2.9", false},
		{Target{"nbd", "10.1.2.3", 3260, ""}, "10.1.2.3", false},
		{Target{"rbd", "mon", 6789, "vms"}, "192.0.2.9", true},
		{Target{"rbd", "mon", 6789, "backup"}, "192.0.2.9", false},
		{Target{"http", "a.images.example.com", 80, ""}, "192.0.2.9", true},
		{Target{"http", "images.example.com", 80, ""}, "192.0.2.9", false},
		{Target{"http", "evilimages.example.com", 80, ""}, "192.0.2.9", false},
		{Target{"http", "x", 80, ""}, "2001:db8::5", true},
	} {
		if err := rules.Check(c.target, netip.MustParseAddr(c.address), nil); (err == nil) != c.allowed {
			t.Errorf("%+v at %s: %v", c.target, c.address, err)
		}
	}
}

func TestValid(t *testing.T) {
	for _, bad := range []Rule{{Protocols: []string{"nfs"}}, {Hosts: []string{"10.1.0.0/99"}}, {Hosts: []string{"a b"}}, {Ports: []int{0}}} {
		if bad.Valid() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	if err := (Rule{Hosts: []string{"10.0.0.0/8", "a.b", "*.b", "::1"}, Ports: []int{1}}).Valid(); err != nil {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	got, err := Parse(`[{"protocols": ["rbd"], "hosts": ["10.0.0.0/8"], "pools": ["vms"]}]`)
	if err != nil || len(got) != 1 || got[0].Pools[0] != "vms" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Parse(" "); err != nil || got != nil {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	for _, bad := range []string{`[{"pool": "vms"}]`, `[{"ports": [0]}]`, `{}`, `x`} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
