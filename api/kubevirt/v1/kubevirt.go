package v1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigurationName is the name of the one KubeVirt that counts, in the namespace that Berth is installed in. Without it all
// settings have their defaults.
const ConfigurationName = "kubevirt"

// KubeVirt holds the administrator's settings for the machines of a cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kubevirts,shortName=kv;kvs,categories=all
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'kubevirt'",message="there is one configuration, and its name is kubevirt, in the namespace that Berth is installed in"
type KubeVirt struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KubeVirtSpec `json:"spec,omitempty"`
}

// KubeVirtList is a list of configurations.
//
// +kubebuilder:object:root=true
type KubeVirtList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KubeVirt `json:"items"`
}

// KubeVirtSpec has the configuration.
type KubeVirtSpec struct {
	Configuration KubeVirtConfiguration `json:"configuration,omitempty"`
}

// KubeVirtConfiguration holds settings that apply to all machines.
type KubeVirtConfiguration struct {
	// EvictionStrategy is the default of machines that set none; None if unset.
	EvictionStrategy       *EvictionStrategy       `json:"evictionStrategy,omitempty"`
	MigrationConfiguration *MigrationConfiguration `json:"migrations,omitempty"`
	// ChangedBlockTrackingLabelSelectors has no effect: backups of every machine can be incremental.
	ChangedBlockTrackingLabelSelectors *ChangedBlockTrackingSelectors `json:"changedBlockTrackingLabelSelectors,omitempty"`
}

// ChangedBlockTrackingSelectors choose machines.
type ChangedBlockTrackingSelectors struct {
	// NamespaceLabelSelector chooses those of namespaces.
	NamespaceLabelSelector *metav1.LabelSelector `json:"namespaceLabelSelector,omitempty"`
	// VirtualMachineLabelSelector chooses them by their own labels.
	VirtualMachineLabelSelector *metav1.LabelSelector `json:"virtualMachineLabelSelector,omitempty"`
}

// MigrationConfiguration has the limits of all migrations. A change does not affect migrations that run already.
//
// +kubebuilder:validation:XValidation:rule="!has(self.allowPostCopy) || !self.allowPostCopy",message="allowPostCopy is not supported: a guest whose memory is on two nodes is lost with either of them. Use allowAutoConverge for a guest that writes too fast"
// +kubebuilder:validation:XValidation:rule="!has(self.disableTLS) || !self.disableTLS",message="disableTLS is not supported: guests are always sent encrypted"
// +kubebuilder:validation:XValidation:rule="!has(self.network) || size(self.network) == 0",message="network is not supported: guests are sent over the network of the pods"
// +kubebuilder:validation:XValidation:rule="!has(self.bandwidthPerMigration) || quantity(string(self.bandwidthPerMigration)).compareTo(quantity('0')) >= 0",message="bandwidthPerMigration is bytes in a second, such as 64Mi; 0 is no limit"
type MigrationConfiguration struct {
	// ParallelMigrationsPerCluster is how many guests are moved at the same time; 5 if unset.
	// +kubebuilder:validation:Minimum=1
	ParallelMigrationsPerCluster *uint32 `json:"parallelMigrationsPerCluster,omitempty"`
	// ParallelOutboundMigrationsPerNode is how many of them from one node; 2 if unset.
	// +kubebuilder:validation:Minimum=1
	ParallelOutboundMigrationsPerNode *uint32 `json:"parallelOutboundMigrationsPerNode,omitempty"`
	// BandwidthPerMigration is how many bytes a second one migration sends; as many as it can if unset or 0.
	// +kubebuilder:validation:XIntOrString
	BandwidthPerMigration *resource.Quantity `json:"bandwidthPerMigration,omitempty"`
	// CompletionTimeoutPerGiB is the time limit of a migration, in seconds for each GiB to send. The default is 150.
	// +kubebuilder:validation:Minimum=1
	CompletionTimeoutPerGiB *int64 `json:"completionTimeoutPerGiB,omitempty"`
	// ProgressTimeout is after how many seconds without any progress a migration is given up; 150 if unset.
	// +kubebuilder:validation:Minimum=1
	ProgressTimeout *int64 `json:"progressTimeout,omitempty"`
	// MaxDowntimeMs is how many milliseconds a guest may be paused while it changes nodes; 300 if unset.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2000000
	MaxDowntimeMs *int64 `json:"maxDowntimeMs,omitempty"`
	// AllowAutoConverge slows a guest down that writes faster than it can be sent.
	AllowAutoConverge *bool `json:"allowAutoConverge,omitempty"`
	// AllowPostCopy must be false: a guest that is on two nodes at once is lost if either of them is.
	AllowPostCopy *bool `json:"allowPostCopy,omitempty"`
	// DisableTLS must be false: guests are sent over mutual TLS only.
	DisableTLS *bool `json:"disableTLS,omitempty"`
	// Network must be empty: guests are sent over the network of the pods.
	Network *string `json:"network,omitempty"`
}

// EvictionStrategy says what happens to a running guest when its node is drained.
//
// +kubebuilder:validation:Enum=None;LiveMigrate;LiveMigrateIfPossible;External
type EvictionStrategy string

// The strategies.
const (
	EvictNone                  EvictionStrategy = "None"                  // it is shut down
	EvictLiveMigrate           EvictionStrategy = "LiveMigrate"           // it moves, and the drain waits; one that cannot move holds the drain up
	EvictLiveMigrateIfPossible EvictionStrategy = "LiveMigrateIfPossible" // it moves, or is shut down if it cannot
	EvictExternal              EvictionStrategy = "External"              // the drain waits until another program has moved or stopped the guest
)

// Migrations are the settings of migrations, with the defaults filled in.
type Migrations struct {
	PerCluster, PerNode int
	Bandwidth           int64 // bytes in a second; 0: no limit
	PerGiB, Progress    time.Duration
	Downtime            int64 // milliseconds; 0: QEMU's
	Converge            bool
}

// Eviction returns the strategy of an instance.
func (c KubeVirtConfiguration) Eviction(i *VirtualMachineInstance) EvictionStrategy {
	for _, s := range []*EvictionStrategy{i.Spec.EvictionStrategy, c.EvictionStrategy} {
		if s != nil && *s != "" {
			return *s
		}
	}
	return EvictNone
}

// Migrations returns the settings of migrations. The defaults are upstream's.
func (c KubeVirtConfiguration) Migrations() Migrations {
	m := Migrations{PerCluster: 5, PerNode: 2, PerGiB: 150 * time.Second, Progress: 150 * time.Second}
	from := c.MigrationConfiguration
	if from == nil {
		return m
	}
	if n := from.ParallelMigrationsPerCluster; n != nil {
		m.PerCluster = int(*n)
	}
	if n := from.ParallelOutboundMigrationsPerNode; n != nil {
		m.PerNode = int(*n)
	}
	if q := from.BandwidthPerMigration; q != nil {
		m.Bandwidth = max(q.Value(), 0)
	}
	if n := from.CompletionTimeoutPerGiB; n != nil {
		m.PerGiB = time.Duration(*n) * time.Second
	}
	if n := from.ProgressTimeout; n != nil {
		m.Progress = time.Duration(*n) * time.Second
	}
	if n := from.MaxDowntimeMs; n != nil {
		m.Downtime = *n
	}
	m.Converge = from.AllowAutoConverge != nil && *from.AllowAutoConverge
	return m
}
