package netdisk

import (
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// samples has a disk of each protocol that refers to everything it can refer to.
var samples = map[string]kubevirt.NetworkSource{
	"iscsi": {ISCSI: &kubevirt.ISCSISource{Host: kubevirt.NetworkHost{Name: "san.example"}, Portal: "iqn.2026-01.example:A", LUN: 2,
		SecretRef: &corev1.LocalObjectReference{Name: "login"}}},
	"rbd": {RBD: &kubevirt.RBDSource{Monitors: []string{"10.0.0.1", "[fd00::1]", "[fd00::2]:3300"}, Pool: "vms", Namespace: "team", Image: "disk",
		SecretRef: &corev1.LocalObjectReference{Name: "login"}}},
	"nbd": {NBD: &kubevirt.NBDSource{Host: kubevirt.NetworkHost{Name: "disks.example"}, Export: "x",
		TLS: &kubevirt.NBDTLS{SecretRef: corev1.LocalObjectReference{Name: "login"}}}},
	"gluster": {Gluster: &kubevirt.GlusterSource{Hosts: []kubevirt.NetworkHost{{Name: "a"}, {Name: "b"}}, Volume: "gv0", Path: "/disk.img"}},
	"http": {HTTP: &kubevirt.HTTPSource{URL: "https://web.example/disk.img?token=1", SecretRef: &corev1.LocalObjectReference{Name: "login"},
		SecretHeaders: []corev1.LocalObjectReference{{Name: "header"}}, CertConfigMap: "ca"}},
}

// TestEveryProtocolHasARow: each source of a network disk that the API has is a protocol whose row is complete, and there is a sample of it.
func TestEveryProtocolHasARow(t *testing.T) {
	all := reflect.TypeFor[kubevirt.NetworkSource]()
	var names []string
	for i := range all.NumField() {
		name, _, _ := strings.Cut(all.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		p, s := Of(name), samples[name]
		if s.Protocol() != name {
			t.Errorf("there is no sample of %s", name)
			continue
		}
		if p.Name != name || p.Port == 0 || p.Advice == "" || p.address == nil || p.key == nil {
			t.Errorf("the row of %s is not complete", name)
			continue
		}
		if (p.node == nil) != p.OwnReader {
			t.Errorf("%s: either QEMU opens it, or the launcher reads it", name)
		}
		if p.SecretType == "" && !p.OwnReader {
			t.Errorf("%s: libvirt has no name for its secrets", name)
		}
		if (p.login == nil) != (len(p.Keys) == 0) || (p.login == nil) != (p.setLogin == nil) {
			t.Errorf("%s: a login has keys, is read and is set", name)
		}
		if p.TLS != (p.certificates != nil) {
			t.Errorf("%s: certificates are for encrypted connections", name)
		}
		checkAddress(t, p, s)
		checkRefs(t, s)
	}
	slices.Sort(names)
	if got := Names(); !slices.Equal(slices.Sorted(slices.Values(got)), names) {
		t.Errorf("the table has rows for %v, the API has %v", got, names)
	}
}

func checkAddress(t *testing.T, p Protocol, s kubevirt.NetworkSource) {
	t.Helper()
	a, err := Open(s, Client{Namespace: "ns", Name: "vm"})
	if err != nil || a.Protocol != p.Name || a.Name == "" || len(a.Servers) == 0 {
		t.Errorf("%s is at %+v, %v", p.Name, a, err)
		return
	}
	for _, server := range a.Servers {
		if server.Host == "" || strings.ContainsAny(server.Host, "[]") || server.Port < 1 {
			t.Errorf("%s has server %+v", p.Name, server)
		}
	}
	if (a.Pool() != "") != p.Pooled {
		t.Errorf("%s is in pool %q", p.Name, a.Pool())
	}
	if node := a.Node("secret", "tls"); node["driver"] != p.Name || !p.OwnReader && len(node) < 3 {
		t.Errorf("QEMU's node of %s is %v", p.Name, node)
	}
	if protocol, parts, err := Key(s, nil); err != nil || protocol != p.Name || len(parts) < 2 {
		t.Errorf("%s is identified by %s %v, %v", p.Name, protocol, parts, err)
	}
}

// checkRefs: everything in a source that has the name of an object is mounted. Reflection finds it, so that a reference that is added to the API
// cannot be left out.
func checkRefs(t *testing.T, s kubevirt.NetworkSource) {
	t.Helper()
	var want, got []string
	var walk func(reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() { //nolint:exhaustive // others hold no references
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			if ref, ok := v.Interface().(corev1.LocalObjectReference); ok {
				want = append(want, ref.Name)
				return
			}
			for i := range v.NumField() {
				if v.Type().Field(i).Name == "CertConfigMap" {
					want = append(want, v.Field(i).String())
				}
				walk(v.Field(i))
			}
		}
	}
	walk(reflect.ValueOf(s))
	for _, r := range Refs(s) {
		got = append(got, r.Secret+r.ConfigMap)
		if r.Dir == "" {
			t.Errorf("%s: %+v is mounted nowhere", s.Protocol(), r)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("%s refers to %v, of which %v are mounted", s.Protocol(), want, got)
	}
}

// TestMonitors: brackets and ports of Ceph's monitors are read the same way everywhere.
func TestMonitors(t *testing.T) {
	a, err := Open(samples["rbd"], Client{})
	want := []Server{{"10.0.0.1", 6789}, {"fd00::1", 6789}, {"fd00::2", 3300}}
	if err != nil || !slices.Equal(a.Servers, want) {
		t.Errorf("monitors are %v, %v; want %v", a.Servers, err, want)
	}
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: samples["rbd"].RBD.Monitors}}}}
	if got := Servers(pv); !slices.Equal(got, []string{"10.0.0.1:6789", "[fd00::1]:6789", "[fd00::2]:3300"}) {
		t.Errorf("the monitors of a volume are %v", got)
	}
	for _, bad := range []string{"m:0", "m:65536", "m:x"} {
		if _, err := Open(kubevirt.NetworkSource{RBD: &kubevirt.RBDSource{Monitors: []string{bad}}}, Client{}); err == nil {
			t.Errorf("monitor %s was accepted", bad)
		}
	}
}

// TestLogins: what a Secret has becomes a login, and what is wrong with one is said without its values.
func TestLogins(t *testing.T) {
	for name, c := range map[string]struct {
		protocol string
		secret   map[string]string
		user     string
		value    string
		refused  string
	}{
		"CHAP":                     {"iscsi", map[string]string{CHAPUser: "u", CHAPPassword: "p"}, "u", "p", ""},
		"CHAP without a password":  {"iscsi", map[string]string{CHAPUser: "u"}, "", "", CHAPPassword},
		"mutual CHAP":              {"iscsi", map[string]string{CHAPUser: "u", CHAPPassword: "p", CHAPUserBack: "t"}, "", "", "mutual CHAP"},
		"Kubernetes' key of Ceph":  {"rbd", map[string]string{CephKey: "a2V5"}, "admin", "key", ""},
		"ceph-csi's":               {"rbd", map[string]string{CephUserKey: "a2V5", CephUser: "csi"}, "csi", "key", ""},
		"a key that is no base64":  {"rbd", map[string]string{CephKey: "secret!"}, "", "", "no key of Ceph's"},
		"a protocol without login": {"gluster", nil, "", "", ""},
	} {
		l, err := ReadLogin(samples[c.protocol], func(key string) (string, error) {
			if v, ok := c.secret[key]; ok {
				return v, nil
			}
			return "", fs.ErrNotExist
		})
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "secret!") {
				t.Errorf("%s: %+v, %v", name, l, err)
			}
		case err != nil || (l == nil) != (c.user == "") || l != nil && (l.User != c.user || string(l.Value) != c.value):
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}
