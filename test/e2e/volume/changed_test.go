//go:build e2e

package volume

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-vm/berth/internal/snapshotmetadata"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

const block = 4096

// TestChangedBlocks is a client of KEP-3314 as upstream's: it finds the service by the driver's name, and has a token for its
// audience. Every node answers, also for snapshots of another one, with every block that a comparison of both snapshots in a pod
// finds. Those who may not read snapshots in the namespace, and tokens for other audiences, get nothing.
func TestChangedBlocks(t *testing.T) {
	t.Parallel()
	d := fixture.Disks{Env: framework.New(t)}
	c := newChangedBlocks(d.Env)
	nodes := d.ReadyNodes()
	node := nodes[len(nodes)-1]
	for _, name := range []string{"data", "other"} {
		d.Create(framework.Claim{Name: name, Class: fixture.ClassDisk, Size: "64Mi", Block: true})
	}
	d.Run(framework.Pod{Name: "fill", Node: node, Claims: []string{"data", "other"},
		Script: "for c in data other; do dd if=/dev/urandom of=/dev/$c bs=1M count=24 conv=fsync 2>/dev/null; done"})
	fixture.TakeSnapshot(d.Env, "base", "data")
	fixture.TakeSnapshot(d.Env, "foreign", "other")
	d.Run(framework.Pod{Name: "change", Node: node, Claims: []string{"data"}, Script: "for at in 3 100 101 255 383; do " +
		"dd if=/dev/urandom of=/dev/data bs=64k seek=$at count=1 conv=fsync 2>/dev/null; done; dd if=/dev/urandom of=/dev/data bs=4k seek=16000 count=1 conv=fsync 2>/dev/null"})
	fixture.TakeSnapshot(d.Env, "target", "data")

	group := fixture.SnapshotGroup
	for _, name := range []string{"base", "target"} {
		claimFrom(d, framework.Claim{Name: "of-" + name, Class: fixture.ClassDisk, Size: "64Mi", Block: true},
			corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: name})
	}
	differ := blocksIn(d.Run(framework.Pod{Name: "compare", Node: node, Claims: []string{"of-base", "of-target"},
		Script: "cmp -l /dev/of-base /dev/of-target | awk '{print int(($1 - 1) / 4096)}' | uniq"}))
	if len(differ) != 5*16+1 {
		t.Fatalf("%d blocks differ", len(differ))
	}
	delta := snapshotmetadata.Query{Snapshot: "target", Base: c.handle("base"), Most: 2}
	for on, address := range c.nodes() {
		if found, err := c.read(address, delta); err != nil || !slices.Equal(found, differ) {
			t.Errorf("%s: changed are %v (%v), different are %v", on, found, err, differ)
		}
		if found, err := c.read(address, snapshotmetadata.Query{Snapshot: "target"}); err != nil || len(found) != 24<<20/block+1 {
			t.Errorf("%s: %d blocks have data (%v)", on, len(found), err)
		}
		c.refuses(address, on)
	}
}

// changedBlocks is an account of the test's namespace that may read its snapshots.
type changedBlocks struct {
	*framework.Env
	audience  string
	authority []byte
	address   string
}

func newChangedBlocks(e *framework.Env) *changedBlocks {
	e.T.Helper()
	c := &changedBlocks{Env: e}
	services := schema.GroupVersionResource{Group: snapshotmetadata.Group, Version: snapshotmetadata.Version, Resource: snapshotmetadata.Resource}
	e.Wait("the service to be announced", fixture.Patience, func(ctx context.Context) (bool, string) {
		service, err := e.Dynamic.Resource(services).Get(ctx, "localdisk.berth.dev", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		spec, _, _ := unstructured.NestedStringMap(service.Object, "spec")
		c.audience, c.address = spec["audience"], spec["address"]
		c.authority, err = base64.StdEncoding.DecodeString(spec["caCert"])
		return err == nil, fmt.Sprint(spec)
	})
	for _, name := range []string{"backup", "stranger"} {
		fixture.AccountToken(e, name)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "backup"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{fixture.SnapshotGroup}, Resources: []string{"volumesnapshots"}, Verbs: []string{"get"}}}}
	if _, err := e.Client.RbacV1().Roles(e.Namespace).Create(e.Context(), role, metav1.CreateOptions{}); err != nil {
		e.T.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "backup"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "backup"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: e.Namespace, Name: "backup"}}}
	if _, err := e.Client.RbacV1().RoleBindings(e.Namespace).Create(e.Context(), binding, metav1.CreateOptions{}); err != nil {
		e.T.Fatal(err)
	}
	return c
}

// token makes one for an account and audiences.
func (c *changedBlocks) token(account string, audiences ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		made, err := c.Client.CoreV1().ServiceAccounts(c.Namespace).CreateToken(ctx, account,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return made.Status.Token, nil
	}
}

// nodes are the addresses of the service by node.
func (c *changedBlocks) nodes() map[string]string {
	c.T.Helper()
	pods, err := c.Client.CoreV1().Pods("localdisk").List(c.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=localdisk-snapshot-metadata"})
	if err != nil {
		c.T.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range pods.Items {
		out[p.Spec.NodeName] = net.JoinHostPort(p.Status.PodIP, "50051")
	}
	if len(out) != len(c.ReadyNodes()) {
		c.T.Fatalf("the service runs on %v", out)
	}
	return out
}

// handle is the CSI handle of a snapshot.
func (c *changedBlocks) handle(name string) string {
	c.T.Helper()
	read := func(resource, namespace, name string, path ...string) string {
		o, err := c.Dynamic.Resource(schema.GroupVersionResource{Group: fixture.SnapshotGroup, Version: "v1", Resource: resource}).Namespace(namespace).
			Get(c.Context(), name, metav1.GetOptions{})
		if err != nil {
			c.T.Fatal(err)
		}
		text, _, _ := unstructured.NestedString(o.Object, path...)
		return text
	}
	content := read("volumesnapshots", c.Namespace, name, "status", "boundVolumeSnapshotContentName")
	return read("volumesnapshotcontents", "", content, "status", "snapshotHandle")
}

// read is which blocks one node finds, as its certificate for the service's name is checked.
func (c *changedBlocks) read(address string, q snapshotmetadata.Query) (blocks []int64, err error) {
	if q.Namespace == "" {
		q.Namespace = c.Namespace
	}
	if q.Token == nil {
		q.Token = c.token("backup", c.audience)
	}
	client, closes, err := snapshotmetadata.Dial("passthrough:///"+c.address, c.authority, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = closes() }()
	err = client.Read(c.Context(), q, func(capacity int64, found []snapshotmetadata.Range) error {
		if capacity != 64<<20 {
			c.T.Errorf("the snapshot has %d bytes", capacity)
		}
		for _, r := range found {
			for b := r.Offset / block; b*block < r.Offset+r.Length; b++ {
				blocks = append(blocks, b)
			}
		}
		return nil
	})
	return blocks, err
}

// refuses tries what must not be answered.
func (c *changedBlocks) refuses(address, on string) {
	c.T.Helper()
	base, foreign := c.handle("base"), c.handle("foreign")
	for name, row := range map[string]struct {
		q    snapshotmetadata.Query
		want codes.Code
	}{
		"no right in the namespace":       {snapshotmetadata.Query{Snapshot: "target", Token: c.token("stranger", c.audience)}, codes.PermissionDenied},
		"a right in another namespace":    {snapshotmetadata.Query{Namespace: "default", Snapshot: "target"}, codes.PermissionDenied},
		"a token for the API server":      {snapshotmetadata.Query{Snapshot: "target", Token: c.token("backup")}, codes.Unauthenticated},
		"a token for somebody else":       {snapshotmetadata.Query{Snapshot: "target", Token: c.token("backup", "somebody")}, codes.Unauthenticated},
		"no token of this cluster":        {snapshotmetadata.Query{Snapshot: "target", Token: func(context.Context) (string, error) { return "a.b.c", nil }}, codes.Unauthenticated},
		"no token":                        {snapshotmetadata.Query{Snapshot: "target", Token: func(context.Context) (string, error) { return "", nil }}, codes.InvalidArgument},
		"a snapshot that is not there":    {snapshotmetadata.Query{Snapshot: "none"}, codes.NotFound},
		"a base of another volume":        {snapshotmetadata.Query{Snapshot: "target", Base: foreign}, codes.InvalidArgument},
		"a base that is not there":        {snapshotmetadata.Query{Snapshot: "target", Base: strings.Replace(base, "snap-", "snap-0", 1)}, codes.NotFound},
		"a base that is a path":           {snapshotmetadata.Query{Snapshot: "target", Base: "snap-../../x"}, codes.InvalidArgument},
		"an offset behind the end":        {snapshotmetadata.Query{Snapshot: "target", From: 1 << 40}, codes.OutOfRange},
		"a negative number of results":    {snapshotmetadata.Query{Snapshot: "target", Most: -1}, codes.InvalidArgument},
		"a snapshot with a path for name": {snapshotmetadata.Query{Snapshot: "../../pods/x"}, codes.InvalidArgument},
	} {
		if found, err := c.read(address, row.q); status.Code(err) != row.want || len(found) > 0 {
			c.T.Errorf("%s, %s: %d blocks, %v", on, name, len(found), err)
		}
	}
}

func blocksIn(text string) (out []int64) {
	for line := range strings.Lines(text) {
		if n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err == nil {
			out = append(out, n)
		}
	}
	return out
}
