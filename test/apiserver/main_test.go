//go:build apiserver

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	sigsyaml "sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/config/crd"
	"github.com/berth-vm/berth/config/library"
	"github.com/berth-vm/berth/internal/admission"
	"github.com/berth-vm/berth/internal/admission/webhookserver"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/hookpath"
	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/controller/profile"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// Namespaces and users of every test. Alice may do anything in team and clone out of golden; Bob may do anything in
// team; Carol as well, and clone one claim out of golden; Gina may also run pods in team.
const (
	home   = "berth"
	golden = "golden"
	team   = "team"

	patience = 2 * time.Minute
)

// Shared by all tests, made by TestMain.
var (
	scheme  = runtime.NewScheme()
	admin   client.Client
	users   = map[string]client.Client{}
	clones  *installkeys.Clone
	ports   []int // of the webhook server, and one nobody listens on
	baseCfg *rest.Config
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "berth-apiserver-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	s, err := startServer(ctx, dir)
	defer s.stop()
	if err != nil {
		return 0, errors.Join(err, tail(dir))
	}
	if err := install(ctx, s.config); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	mgr, err := newManager(ctx, s.config, dir)
	if err != nil {
		return 0, err
	}
	go func() { ended <- mgr.Start(ctx) }()
	if err := waitForWebhooks(ctx, ended); err != nil {
		return 0, err
	}
	code := m.Run()
	cancel()
	if err := <-ended; err != nil {
		return code, fmt.Errorf("the manager ended: %w", err)
	}
	return code, nil
}

func tail(dir string) error {
	log, err := os.ReadFile(filepath.Join(dir, "kube-apiserver.log"))
	if err != nil {
		return err
	}
	return errors.New(string(log[max(0, len(log)-4000):]))
}

// install does what kubectl apply -k does, for the parts these tests are about.
func install(ctx context.Context, cfg *rest.Config) error {
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme, kubevirt.AddToScheme, volumesnapshot.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	baseCfg = cfg
	if admin, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if ports, err = freePorts(2); err != nil {
		return err
	}
	for _, name := range []string{home, golden, team, library.Namespace} {
		if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	err = fs.WalkDir(crd.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return applyFile(ctx, crd.Files, path)
	})
	if err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	manifests := os.DirFS(filepath.Join(root, "config", "webhook"))
	for _, name := range []string{"role.yaml", "validating.yaml", "machine.yaml", "mutating.yaml"} {
		if err := applyFile(ctx, manifests, name); err != nil {
			return err
		}
	}
	// The Service leads to this process instead of to pods; the name in the certificate is the same.
	if err := admin.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: admission.Service},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1"},
	}); err != nil {
		return err
	}
	return createUsers(ctx, cfg)
}

func applyFile(ctx context.Context, files fs.FS, path string) error {
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if strings.HasSuffix(u.GetKind(), "WebhookConfiguration") {
			setPort(u, ports[0])
		}
		if err := admin.Create(ctx, u); err != nil {
			return fmt.Errorf("create %s: %w", path, err)
		}
	}
}

// setPort points every webhook of a configuration to a port of the Service.
func setPort(u *unstructured.Unstructured, port int) {
	hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	for _, h := range hooks {
		_ = unstructured.SetNestedField(h.(map[string]any), int64(port), "clientConfig", "service", "port")
	}
	_ = unstructured.SetNestedSlice(u.Object, hooks, "webhooks")
}

func createUsers(ctx context.Context, cfg *rest.Config) error {
	everything := []rbacv1.PolicyRule{
		{APIGroups: []string{"cdi.kubevirt.io", "kubevirt.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"*"}},
	}
	source := rbacv1.PolicyRule{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes/source"}, Verbs: []string{"create"}}
	one := *source.DeepCopy()
	one.ResourceNames = []string{"fedora"}
	pods := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}
	for _, r := range []struct {
		namespace, user string
		rules           []rbacv1.PolicyRule
	}{
		{team, "alice", everything}, {team, "bob", everything}, {team, "carol", everything}, {team, "dave", everything},
		{golden, "alice", []rbacv1.PolicyRule{source}}, {golden, "carol", []rbacv1.PolicyRule{one}},
		{golden, "dave", []rbacv1.PolicyRule{pods}}, {team, "erin", everything}, {team, "frank", everything},
		{team, "gina", append(slices.Clone(everything), pods)},
		{golden, "erin", []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
	} {
		meta := metav1.ObjectMeta{Namespace: r.namespace, Name: r.user}
		if err := admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: r.rules}); err != nil {
			return err
		}
		if err := admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.user},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: r.user}},
		}); err != nil {
			return err
		}
		as := rest.CopyConfig(cfg)
		as.Impersonate.UserName = r.user
		c, err := client.New(as, client.Options{Scheme: scheme})
		if err != nil {
			return err
		}
		users[r.user] = c
	}
	return nil
}

// newManager returns the part of cmd/controller that is tested here.
func newManager(ctx context.Context, cfg *rest.Config, dir string) (ctrl.Manager, error) {
	serving, paths := installkeys.NewServing(), hookpath.New()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: metrics.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		WebhookServer: webhookserver.New(webhookserver.Options{
			Address: fmt.Sprintf("127.0.0.1:%d", ports[0]), GetCertificate: serving.GetCertificate, Open: paths.Open,
		}),
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
	})
	if err != nil {
		return nil, err
	}
	writer := cluster.New(mgr.GetClient(), mgr.GetEventRecorder("berth"), clock.RealClock{})
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	clones = installkeys.NewClone(mgr.GetAPIReader(), writer, home, clients.AuthorizationV1().SubjectAccessReviews())
	if err := serving.Start(ctx, mgr, writer, installkeys.Options{
		Namespace: home, Services: []string{admission.Service}, Dir: dir,
		Validating: []string{admission.Validating, admission.ValidatingMachine}, Mutating: []string{admission.Mutating},
	}); err != nil {
		return nil, err
	}
	if err := paths.Setup(mgr, writer, hookpath.Options{
		Namespace: home, Validating: []string{admission.Validating, admission.ValidatingMachine}, Mutating: []string{admission.Mutating},
		Paths: admission.Paths, Clock: clock.RealClock{},
	}); err != nil {
		return nil, err
	}
	if err := admission.Setup(ctx, mgr, clones); err != nil {
		return nil, err
	}
	if err := admission.SetupMachine(ctx, mgr, writer, home); err != nil {
		return nil, err
	}
	if err := profile.Setup(mgr, writer); err != nil {
		return nil, err
	}
	return mgr, config.Setup(mgr, writer, config.Options{Namespace: home, Version: "test"})
}

// waitForWebhooks waits until a volume that cannot be is refused by both configurations: then certificates are made,
// trusted and served.
func waitForWebhooks(ctx context.Context, ended <-chan error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("the manager ended: %w", err)
		default:
		}
		last = admin.Create(ctx, object(`{kind: DataVolume, metadata: {name: probe, namespace: team}, spec: {
			source: {pvc: {namespace: golden, name: none}}}}`), client.DryRunAll)
		return last != nil && strings.Contains(last.Error(), "Missing Data volume PVC"), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the webhooks: %w (%w)", err, last)
	}
	return nil
}

// object reads YAML; without an apiVersion it is of cdi.kubevirt.io.
func object(text string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := sigsyaml.Unmarshal([]byte(text), &u.Object); err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	if u.GetAPIVersion() == "" {
		u.SetAPIVersion(cdiv1.SchemeGroupVersion.String())
	}
	return u
}

// eventually waits for a condition of the cluster. The error is printed if it does not become true.
func eventually(t *testing.T, what string, is func() (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		ok, err := is()
		last = err
		return ok, nil
	})
	if err != nil {
		t.Fatalf("%s: %v (%v)", what, err, last)
	}
}
