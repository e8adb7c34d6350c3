package metadata

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	wire "github.com/berth-vm/berth/internal/snapshotmetadata"
)

const (
	driverName = "driver.example.org"
	audience   = "here"
)

// simulatedAPI answers as an API server that knows two tokens: "good" is of a user who may read the snapshots in ns, "poor" of a
// user who may not. (The real one is asked by the test on the cluster.)
func simulatedAPI() *fake.Clientset {
	kube := fake.NewClientset()
	kube.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		switch r.Spec.Token {
		case "good", "poor":
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: r.Spec.Audiences, User: authenticationv1.UserInfo{Username: r.Spec.Token}}
		case "of-others": // an authenticator that knows no audiences
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"there"}, User: authenticationv1.UserInfo{Username: "good"}}
		case "broken":
			return true, nil, errors.New("broken")
		}
		return true, r, nil
	})
	kube.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		of := r.Spec.ResourceAttributes
		r.Status.Allowed = r.Spec.User == "good" && of.Namespace == "ns" && of.Verb == "get" && of.Resource == "volumesnapshots" && of.Group == snapshotGroup
		return true, r, nil
	})
	return kube
}

func object(kind, namespace, name string, rest map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: rest}
	o.SetAPIVersion(snapshotGroup + "/v1")
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// pair is a snapshot in ns and its content, which change may change.
func pair(name, node string, change func(snapshot, content map[string]any)) []runtime.Object {
	snapshot := map[string]any{"metadata": map[string]any{"uid": "uid-" + name},
		"status": map[string]any{"readyToUse": true, "boundVolumeSnapshotContentName": "content-" + name}}
	content := map[string]any{"metadata": map[string]any{"labels": map[string]any{managedBy: node}},
		"spec":   map[string]any{"driver": driverName, "volumeSnapshotRef": map[string]any{"namespace": "ns", "name": name, "uid": "uid-" + name}},
		"status": map[string]any{"snapshotHandle": "handle-" + name}}
	if change != nil {
		change(snapshot, content)
	}
	return []runtime.Object{object("VolumeSnapshot", "ns", name, snapshot), object("VolumeSnapshotContent", "", "content-"+name, content)}
}

func set(key string, value any) func(o map[string]any) {
	return func(o map[string]any) { o[key] = value }
}

func simulatedObjects() *dynamicfake.FakeDynamicClient {
	inner := func(what string, change func(map[string]any)) func(snapshot, content map[string]any) {
		return func(snapshot, content map[string]any) {
			switch what {
			case "snapshot":
				change(snapshot["status"].(map[string]any))
			case "spec":
				change(content["spec"].(map[string]any))
			case "status":
				change(content["status"].(map[string]any))
			}
		}
	}
	all := slices.Concat(
		pair("near", "one", nil), pair("far", "two", nil), pair("lost", "three", nil),
		pair("unready", "one", inner("snapshot", set("readyToUse", false))), pair("unbound", "one", inner("snapshot", set("boundVolumeSnapshotContentName", ""))),
		pair("others", "one", inner("spec", set("driver", "other.example.org"))), pair("young", "one", inner("status", set("snapshotHandle", ""))),
		// a snapshot that names a content that is bound to another snapshot
		pair("forged", "one", inner("snapshot", set("boundVolumeSnapshotContentName", "content-near"))),
		pair("again", "one", inner("spec", set("volumeSnapshotRef", map[string]any{"namespace": "ns", "name": "again", "uid": "of-the-one-before"}))),
	)
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		snapshots: "VolumeSnapshotList", contents: "VolumeSnapshotContentList",
	}, all...)
}

// simulatedDriver answers with two messages that tell what it was asked.
type simulatedDriver struct {
	csi.UnimplementedSnapshotMetadataServer
	node int64
}

func (d simulatedDriver) GetMetadataAllocated(r *csi.GetMetadataAllocatedRequest, out csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	for n := range int64(2) {
		if err := out.Send(&csi.GetMetadataAllocatedResponse{BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: 1000,
			BlockMetadata: []*csi.BlockMetadata{{ByteOffset: r.GetStartingOffset() + 10*n, SizeBytes: d.node}}}); err != nil {
			return err
		}
	}
	return nil
}

func (d simulatedDriver) GetMetadataDelta(r *csi.GetMetadataDeltaRequest, out csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	if r.GetBaseSnapshotId() == "gone" {
		return status.Error(codes.NotFound, "gone")
	}
	return out.Send(&csi.GetMetadataDeltaResponse{BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: 1000,
		BlockMetadata: []*csi.BlockMetadata{{ByteOffset: int64(r.GetMaxResults()), SizeBytes: int64(len(r.GetTargetSnapshotId()))}}})
}

func listen(t *testing.T, server *grpc.Server) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// cluster is the service on two nodes; calls reach "one".
func cluster(t *testing.T) *wire.Client {
	t.Helper()
	kube, objects := simulatedAPI(), simulatedObjects()
	addresses := map[string]string{}
	for n, node := range []string{"one", "two"} {
		below := grpc.NewServer()
		csi.RegisterSnapshotMetadataServer(below, simulatedDriver{node: int64(n + 1)})
		conn := connect(t, listen(t, below))
		addresses[node] = listen(t, (&Server{
			Kube: kube, Objects: objects, CSI: csi.NewSnapshotMetadataClient(conn), Driver: driverName, Audience: audience, Node: node, Log: slog.New(slog.DiscardHandler),
			Peer: func(_ context.Context, node string) (grpc.ClientConnInterface, func() error, error) {
				if addresses[node] == "" {
					return nil, nil, errors.New("the service does not run there")
				}
				conn, err := grpc.NewClient(addresses[node], grpc.WithTransportCredentials(insecure.NewCredentials()))
				return conn, conn.Close, err
			},
		}).GRPC())
	}
	return wire.Over(connect(t, addresses["one"]))
}

func connect(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestAnswers: a user who may read the snapshots gets the answer of the driver on the snapshot's node, and other users get an error.
func TestAnswers(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	for name, row := range map[string]struct {
		q     wire.Query
		token string
		want  []wire.Range
		code  codes.Code
	}{
		"of this node":               {q: wire.Query{Snapshot: "near", From: 5}, want: []wire.Range{{Offset: 5, Length: 1}, {Offset: 15, Length: 1}}},
		"of another node":            {q: wire.Query{Snapshot: "far", From: 5}, want: []wire.Range{{Offset: 5, Length: 2}, {Offset: 15, Length: 2}}},
		"changes":                    {q: wire.Query{Snapshot: "far", Base: "b", Most: 7}, want: []wire.Range{{Offset: 7, Length: 10}}},
		"of a node without it":       {q: wire.Query{Snapshot: "lost"}, code: codes.Unavailable},
		"the driver's refusal":       {q: wire.Query{Snapshot: "far", Base: "gone"}, code: codes.NotFound},
		"no name":                    {code: codes.InvalidArgument},
		"not a name":                 {q: wire.Query{Snapshot: "../x"}, code: codes.InvalidArgument},
		"not there":                  {q: wire.Query{Snapshot: "none"}, code: codes.NotFound},
		"not ready":                  {q: wire.Query{Snapshot: "unready"}, code: codes.Unavailable},
		"not bound":                  {q: wire.Query{Snapshot: "unbound"}, code: codes.Unavailable},
		"without a handle":           {q: wire.Query{Snapshot: "young"}, code: codes.Unavailable},
		"of another driver":          {q: wire.Query{Snapshot: "others"}, code: codes.InvalidArgument},
		"bound to another's content": {q: wire.Query{Snapshot: "forged"}, code: codes.Unavailable},
		"of its name before":         {q: wire.Query{Snapshot: "again"}, code: codes.Unavailable},
		"nobody's token":             {q: wire.Query{Snapshot: "near"}, token: "bad", code: codes.Unauthenticated},
		"a token for others":         {q: wire.Query{Snapshot: "near"}, token: "of-others", code: codes.Unauthenticated},
		"a token without rights":     {q: wire.Query{Snapshot: "near"}, token: "poor", code: codes.PermissionDenied},
		"in another namespace":       {q: wire.Query{Snapshot: "near", Namespace: "kube-system"}, code: codes.PermissionDenied},
		"while nobody can be asked":  {q: wire.Query{Snapshot: "near"}, token: "broken", code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := row.q
			if q.Namespace == "" {
				q.Namespace = "ns"
			}
			q.Token = func(context.Context) (string, error) { return cmp.Or(row.token, "good"), nil }
			var got []wire.Range
			err := c.Read(t.Context(), q, func(_ int64, found []wire.Range) error {
				got = append(got, found...)
				return nil
			})
			if status.Code(err) != row.code || !slices.Equal(got, row.want) {
				t.Errorf("got %v, %v; want %v, %v", got, err, row.want, row.code)
			}
		})
	}
}

// TestKeys: all nodes have one authority, of whichever made it first; clients find it in the object that is announced, and each
// process has a certificate for the name of the Service.
func TestKeys(t *testing.T) {
	t.Parallel()
	kube := fake.NewClientset()
	services := schema.GroupVersionResource{Group: wire.Group, Version: wire.Version, Resource: wire.Resource}
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{services: "SnapshotMetadataServiceList"})
	var announced *unstructured.Unstructured
	objects.PrependReactor("patch", wire.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		announced = &unstructured.Unstructured{}
		err := announced.UnmarshalJSON(a.(clienttesting.PatchAction).GetPatch())
		return true, announced, err
	})
	now := time.Now()
	var nodes [2]*Keys
	for n := range nodes {
		nodes[n] = &Keys{Kube: kube, Objects: objects, Namespace: "space", Service: "meta", Port: "50051", Driver: driverName, Audience: audience}
		if err := nodes[n].Load(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes[1].Announce(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedStringMap(announced.Object, "spec")
	if announced.GetName() != driverName || spec["address"] != "meta.space.svc:50051" || spec["audience"] != audience {
		t.Errorf("announced is %v", announced.Object)
	}
	authority, err := base64.StdEncoding.DecodeString(spec["caCert"])
	if err != nil {
		t.Fatal(err)
	}
	server := (&Server{Kube: simulatedAPI(), Objects: simulatedObjects(), Driver: driverName, Audience: audience, Node: "one", Log: slog.New(slog.DiscardHandler)}).GRPC(grpc.Creds(nodes[0].Server()))
	address := listen(t, server)
	client, closes, err := wire.Dial("passthrough:///"+spec["address"], authority, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closes() }()
	err = client.Read(t.Context(), wire.Query{Namespace: "ns", Snapshot: "none", Token: func(context.Context) (string, error) { return "good", nil }}, nil)
	if status.Code(err) != codes.NotFound { // so the connection was made
		t.Errorf("asked over TLS: %v", err)
	}

	first, err := nodes[0].certificate(now)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := nodes[0].certificate(now.Add(leafLasts / 3)); err != nil || again != first {
		t.Errorf("a new certificate after a third of its time: %v", err)
	}
	if later, err := nodes[0].certificate(now.Add(leafLasts * 2 / 3)); err != nil || later == first {
		t.Errorf("no new certificate after two thirds of its time: %v", err)
	}
	kept, err := kube.CoreV1().Secrets("space").Get(t.Context(), "meta", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept.Data["tls.key"] = []byte("damaged")
	if _, err := kube.CoreV1().Secrets("space").Update(t.Context(), kept, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := nodes[0].Load(t.Context(), now); err == nil {
		t.Error("a damaged authority is taken")
	}
}
