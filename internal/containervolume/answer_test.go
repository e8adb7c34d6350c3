package containervolume

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/reach"
)

// The proposal's own two answers, as it writes them.
const (
	seedClaim = `
    pvc:
      claimname: some-pvc-name
`
	seedISCSI = `
    iscsi:
      host:
        name: iscsi-demo-target
        port: "3260"
      portal: iqn.2017-01.io.kubevirt:sn.42
    lun: 2
`
)

func TestAnswers(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"the proposal's claim", seedClaim, "pvc: {claimname: some-pvc-name}"},
		{"the proposal's LUN", seedISCSI, `iscsi: {host: {name: iscsi-demo-target, port: "3260"}, portal: "iqn.2017-01.io.kubevirt:sn.42", lun: 2}`},
		{"a LUN where users write it", `{"iscsi": {"host": {"name": "h"}, "portal": "iqn.2017-01.io.kubevirt:sn.42", "lun": 3}}`,
			`iscsi: {host: {name: h}, portal: "iqn.2017-01.io.kubevirt:sn.42", lun: 3}`},
		{"an export", "nbd: {host: {name: h}, export: disk}", "nbd: {host: {name: h}, export: disk}"},
		{"an image", "rbd: {monitors: [h], pool: p, image: i}", "rbd: {monitors: [h], pool: p, image: i}"},
		{"a URL", "http: {url: https://h/x}", "http: {url: https://h/x}"},
		{"a file", "gluster: {hosts: [{name: h}], volume: v, path: p}", "gluster: {hosts: [{name: h}], volume: v, path: p}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Read([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			want := &kubevirt.MadeSource{}
			if err := yaml.UnmarshalStrict([]byte(c.want), want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnswersThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "must name one of iscsi, rbd, nbd, gluster, http, pvc, and names 0 of them"},
		{"no document", "{", "neither YAML nor JSON"},
		{"a page", "<html><body>Not found</body></html>", "neither YAML nor JSON"},
		{"a list", "- iscsi", "neither YAML nor JSON"},
		{"two", "pvc: {claimname: c}\nhttp: {url: http://h/x}", "names 2 of them"},
		{"a container", "container: {image: again}", "it names container, which a container may not give"},
		{"a container as well", "pvc: {claimname: c}\ncontainer: {image: again}", "it names container"},
		{"a file of the node", "hostDisk: {path: /etc/shadow, type: Disk}", "it names hostDisk"},
		{"a claim of another namespace", "pvc: {claimname: c, namespace: other}", `unknown field "namespace"`},
		{"a field that is none", "nbd: {host: {name: h}, tsl: {}}", `unknown field "tsl"`},
		{"more than a source", "pvc: {claimname: c}\naccess-mode: write-shared", `unknown field "access-mode"`},
		{"no LUN", "iscsi: {host: {name: h}, portal: iqn.2017-01.io:a}", "it names an iSCSI target and no lun"},
		{"two LUNs", "iscsi: {host: {name: h}, portal: iqn.2017-01.io:a, lun: 1}\nlun: 2", "LUN 2 beside iscsi and LUN 1 in it"},
		{"a LUN of nothing", "pvc: {claimname: c}\nlun: 2", "it has a lun and no iscsi"},
		{"a name twice", "pvc: {claimname: c, claimname: d}", "already set"},
		{"too much", "pvc: {claimname: c}\n" + strings.Repeat("#", longest), "it is larger than 64 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Read([]byte(c.text))
			if err == nil || !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v %v\nwant %s", got, err, c.want)
			}
		})
	}
}

// TestForbiddenServers: a server that users may never name is refused to containers too, and so is one that the administrator's
// rules exclude.
func TestForbiddenServers(t *testing.T) {
	rules := reach.Rules{{Protocols: []string{"iscsi"}, Hosts: []string{"10.0.0.0/8"}}, {Protocols: []string{"rbd"}, Pools: []string{"vms"}}}
	for _, c := range []struct {
		text  string
		rules reach.Rules
		want  string // empty: it is allowed
	}{
		{"iscsi: {host: {name: 127.0.0.1}, portal: iqn.2017-01.io:a, lun: 1}", nil, "is a loopback address"},
		{"iscsi: {host: {name: localhost}, portal: iqn.2017-01.io:a, lun: 1}", nil, "would be the machine's own pod"},
		{"nbd: {host: {name: \"::1\"}}", nil, "is a loopback address"},
		{"http: {url: \"http://169.254.169.254/latest\"}", nil, "is a link-local address"},
		{"http: {url: \"http://[::1]:8080/x\"}", nil, "is a loopback address"},
		{"gluster: {hosts: [{name: 10.0.0.1}, {name: 127.0.0.1}], volume: v, path: p}", nil, "is a loopback address"},
		{"rbd: {monitors: [\"127.0.0.1:6789\"], pool: p, image: i}", nil, "is a loopback address"},
		{"rbd: {monitors: [\"[::1]:6789\"], pool: p, image: i}", nil, "is a loopback address"},
		{"iscsi: {host: {name: 192.168.0.1}, portal: iqn.2017-01.io:a, lun: 1}", rules, "no rule of the administrator's"},
		{"iscsi: {host: {name: 10.1.0.1}, portal: iqn.2017-01.io:a, lun: 1}", rules, ""},
		{"rbd: {monitors: [10.0.0.1], pool: other, image: i}", rules, "no rule of the administrator's"},
		{"rbd: {monitors: [10.0.0.1], pool: vms, image: i}", rules, ""},
		{"iscsi: {host: {name: san.example.com}, portal: iqn.2017-01.io:a, lun: 1}", rules, ""}, // asked about when it is resolved
		{"pvc: {claimname: c}", rules, ""},
	} {
		s, err := Read([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		err = Reach(s, c.rules)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(seedClaim))
	f.Add([]byte(seedISCSI))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Read(text)
		if err != nil {
			if !errors.Is(err, ErrRefused) {
				t.Errorf("not a refusal: %v", err)
			}
			return
		}
		if s == nil {
			t.Fatal("no error and no source")
		}
		_ = Reach(s, nil)
	})
}
