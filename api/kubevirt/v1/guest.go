package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The reports of a guest's agent, as subresources of its instance. The guest itself writes the content of these documents.

// GuestAgentInfo is the subresource guestosinfo.
// +kubebuilder:object:generate=false
type GuestAgentInfo struct {
	metav1.TypeMeta   `json:",inline"`
	GAVersion         string         `json:"guestAgentVersion,omitempty"`
	SupportedCommands []GuestCommand `json:"supportedCommands,omitempty"`
	Hostname          string         `json:"hostname,omitempty"`
	OS                GuestOS        `json:"os,omitempty"`
	Timezone          string         `json:"timezone,omitempty"`
	UserList          []GuestUser    `json:"userList,omitempty"`
	FSInfo            GuestDisks     `json:"fsInfo,omitempty"`
}

// GuestCommand is a command of the agent's.
// +kubebuilder:object:generate=false
type GuestCommand struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled,omitempty"`
}

// GuestOS is the guest's operating system.
type GuestOS struct {
	// Name of the operating system, such as Debian GNU/Linux.
	Name string `json:"name,omitempty"`
	// KernelRelease is the release of its kernel.
	KernelRelease string `json:"kernelRelease,omitempty"`
	// Version of the operating system.
	Version string `json:"version,omitempty"`
	// PrettyName is its name and version for people.
	PrettyName string `json:"prettyName,omitempty"`
	// VersionID is its version for programs.
	VersionID string `json:"versionId,omitempty"`
	// KernelVersion is the version of its kernel.
	KernelVersion string `json:"kernelVersion,omitempty"`
	// Machine is the kind of processor.
	Machine string `json:"machine,omitempty"`
	// ID is the operating system's name for programs, such as debian.
	ID string `json:"id,omitempty"`
}

// GuestUserList is the subresource userlist.
// +kubebuilder:object:generate=false
type GuestUserList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GuestUser `json:"items"`
}

// GuestUser is a user who is logged in to the guest. LoginTime is in seconds since 1970.
// +kubebuilder:object:generate=false
type GuestUser struct {
	UserName  string  `json:"userName"`
	Domain    string  `json:"domain,omitempty"`
	LoginTime float64 `json:"loginTime,omitempty"`
}

// GuestDisks are the guest's filesystems, as guestosinfo lists them.
// +kubebuilder:object:generate=false
type GuestDisks struct {
	Filesystems []GuestFilesystem `json:"disks"`
}

// GuestFilesystemList is the subresource filesystemlist.
// +kubebuilder:object:generate=false
type GuestFilesystemList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GuestFilesystem `json:"items"`
}

// GuestFilesystem is one that is mounted in the guest.
// +kubebuilder:object:generate=false
type GuestFilesystem struct {
	DiskName       string                `json:"diskName"`
	MountPoint     string                `json:"mountPoint"`
	FileSystemType string                `json:"fileSystemType"`
	UsedBytes      int64                 `json:"usedBytes"`
	TotalBytes     int64                 `json:"totalBytes"`
	Disk           []GuestFilesystemDisk `json:"disk,omitempty"`
}

// GuestFilesystemDisk is a disk that a filesystem is on.
// +kubebuilder:object:generate=false
type GuestFilesystemDisk struct {
	Serial  string `json:"serial,omitempty"`
	BusType string `json:"busType"`
}
