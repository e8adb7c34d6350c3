package admission

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
)

// Names of the two webhook configurations in config/webhook.
const (
	Validating = "berth"
	Mutating   = "berth"
	// Service leads to the webhook server, in the namespace of the installation.
	Service = "berth-webhook"
)

// One path per check: a configuration decides for each what happens when it fails.
const (
	PathVolume       = "/validate/datavolumes"
	PathDataSource   = "/validate/datasources"
	PathCron         = "/validate/dataimportcrons"
	PathImportSource = "/validate/volumeimportsources"
	PathUploadSource = "/validate/volumeuploadsources"
	PathCloneSource  = "/validate/volumeclonesources"
	PathTransfer     = "/validate/objecttransfers"
	PathCDI          = "/validate/cdis"
	PathClaim        = "/validate/persistentvolumeclaims"
	PathAuthorise    = "/authorise/datavolumes"
	PathMachine      = "/authorise/virtualmachines"
	PathComplete     = "/complete/persistentvolumeclaims"
	PathSource       = "/source/persistentvolumeclaims"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=cdis;datavolumes;datasources;storageprofiles;volumeclonesources,verbs=get;list;watch
// +kubebuilder:rbac:groups=snapshot.storage.k8s.io,resources=volumesnapshots,verbs=get
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Paths has the path of each webhook by the name that it has in config/webhook. The configurations get these paths from internal/controller/hookpath,
// with a word in front.
var Paths = map[string]string{
	"datavolume.cdi.kubevirt.io":                     PathVolume,
	"datasource.cdi.kubevirt.io":                     PathDataSource,
	"dataimportcron.cdi.kubevirt.io":                 PathCron,
	"volumeimportsource.cdi.kubevirt.io":             PathImportSource,
	"volumeuploadsource.cdi.kubevirt.io":             PathUploadSource,
	"volumeclonesource.cdi.kubevirt.io":              PathCloneSource,
	"objecttransfer.cdi.kubevirt.io":                 PathTransfer,
	"cdi.cdi.kubevirt.io":                            PathCDI,
	"persistentvolumeclaim.cdi.kubevirt.io":          PathClaim,
	"authorise.datavolume.cdi.kubevirt.io":           PathAuthorise,
	"authorise.virtualmachine.kubevirt.io":           PathMachine,
	"complete.persistentvolumeclaim.cdi.kubevirt.io": PathComplete,
	"source.persistentvolumeclaim.cdi.kubevirt.io":   PathSource,
	"virtualmachine.kubevirt.io":                     PathCheckMachine,
	"virtualmachineinstance.kubevirt.io":             PathCheckInstance,
	"containers.virtualmachine.kubevirt.io":          PathContainers,
	"migration.kubevirt.io":                          PathMigration,
	"virt-launcher-eviction-interceptor.kubevirt.io": PathEvict,
}

// Setup registers every check with the manager's webhook server, whose certificate is not this package's business.
func Setup(ctx context.Context, mgr ctrl.Manager, signer Signer) error {
	clients, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("set up admission: %w", err)
	}
	l := &lookup{
		cache: mgr.GetCache(), objects: cluster.Reading{Objects: mgr.GetCache(), Live: mgr.GetAPIReader()},
		reviews:  clients.AuthorizationV1().SubjectAccessReviews(),
		settings: config.NewReader(mgr.GetCache()), signer: signer,
	}
	if l.self, err = ourselves(ctx, clients); err != nil {
		return err
	}
	if err := l.warm(ctx); err != nil {
		return err
	}
	server := mgr.GetWebhookServer()
	for path, handler := range l.handlers() {
		server.Register(path, &admission.Webhook{Handler: handler})
	}
	if err := mgr.AddReadyzCheck("webhook", func(r *http.Request) error { return server.StartedChecker()(r) }); err != nil {
		return fmt.Errorf("set up admission: %w", err)
	}
	return nil
}

// warm has the cache follow what the checks look up from the start: the first request must not wait for a list.
func (l *lookup) warm(ctx context.Context) error {
	for _, kind := range []interface {
		metav1.Object
		runtime.Object
	}{
		&corev1.PersistentVolumeClaim{}, &storagev1.StorageClass{}, &cdiv1.StorageProfile{}, &cdiv1.DataVolume{},
		&cdiv1.DataSource{}, &cdiv1.VolumeCloneSource{}, &cdiv1.CDI{},
	} {
		if _, err := l.cache.GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("set up admission: watch %T: %w", kind, err)
		}
	}
	return nil
}

func (l *lookup) handlers() map[string]admission.Handler {
	return map[string]admission.Handler{
		PathVolume:       check[cdiv1.DataVolume](l.checkVolume),
		PathDataSource:   check[cdiv1.DataSource](checkDataSource),
		PathCron:         check[cdiv1.DataImportCron](checkCron),
		PathImportSource: check[cdiv1.VolumeImportSource](checkImportSource),
		PathUploadSource: check[cdiv1.VolumeUploadSource](checkUploadSource),
		PathCloneSource:  check[cdiv1.VolumeCloneSource](checkCloneSource),
		PathTransfer:     check[cdiv1.ObjectTransfer](checkTransfer),
		PathCDI:          check[cdiv1.CDI](l.checkCDI),
		PathClaim:        check[corev1.PersistentVolumeClaim](checkClaim),
		PathAuthorise:    admission.HandlerFunc(l.authorise),
		PathMachine:      admission.HandlerFunc(l.authoriseMachine),
		PathComplete:     admission.HandlerFunc(l.complete),
		PathSource:       admission.HandlerFunc(moveNamespace),
	}
}
