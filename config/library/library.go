// Package library is the library that an installation may have: golden images of common distributions, and instance types and preferences
// under the names that users of KubeVirt know. These tables are all of it; go generate writes the manifests.
//
// It only describes objects. It does not know whether a cluster has them.
package library

//go:generate go run ./gen .

// Namespace is where the images are, as upstream's operators name it.
const Namespace = "kubevirt-os-images"

// Image is a golden image.
type Image struct {
	Name       string // of the DataSource that machines name
	From       string // container disk
	Preference string
	Size       string // of the claim
}

// Images are kept up to date from the container disks of the KubeVirt project. A tag stays with its release and is rebuilt.
var Images = []Image{
	{"centos-stream9", "quay.io/containerdisks/centos-stream:9", "centos.stream9", "10Gi"},
	{"centos-stream10", "quay.io/containerdisks/centos-stream:10", "centos.stream10", "10Gi"},
	{"debian", "quay.io/containerdisks/debian:13", "debian", "5Gi"},
	{"fedora", "quay.io/containerdisks/fedora:latest", "fedora", "6Gi"},
	{"opensuse-leap", "quay.io/containerdisks/opensuse-leap:15.6", "opensuse.leap", "5Gi"},
	{"opensuse-tumbleweed", "quay.io/containerdisks/opensuse-tumbleweed:1.0.0", "opensuse.tumbleweed", "5Gi"},
	{"ubuntu", "quay.io/containerdisks/ubuntu:24.04", "ubuntu", "5Gi"},
}

// ImageType is the instance type that suits every image.
const ImageType = "u1.medium"

// Series is a row of instance types that differ in size only.
type Series struct {
	Name, Display, Class, Description string
	Overcommit                        int    // percent
	HugePages                         string // their size
	Sizes                             []Size
}

// Size is one of a series.
type Size struct {
	Name   string
	CPU    uint32
	Memory string
}

var general = []Size{
	{"nano", 1, "512Mi"}, {"micro", 1, "1Gi"}, {"small", 1, "2Gi"}, {"medium", 1, "4Gi"}, {"large", 2, "8Gi"},
	{"xlarge", 4, "16Gi"}, {"2xlarge", 8, "32Gi"}, {"4xlarge", 16, "64Gi"}, {"8xlarge", 32, "128Gi"},
}

// Types are the instance types. Upstream's cx1, d1, gn1, n1 and rt1 promise processors or devices of the host for one guest alone, which machines here
// cannot have, so they are not here: a machine that names one says that there is none.
var Types = []Series{
	{Name: "u1", Display: "General Purpose", Class: "general.purpose", Sizes: append([]Size{{"2xmedium", 2, "4Gi"}}, general...),
		Description: "Neutral resources for many kinds of guests. Processors are shared between guests by time; the memory is the guest's own."},
	{Name: "o1", Display: "Overcommitted", Class: "overcommitted", Overcommit: 50, Sizes: general,
		Description: "As u1, but the node is asked for half of the memory that the guest has: more guests fit, and may be ended if all need theirs."},
	{Name: "m1", Display: "Memory Intensive", Class: "memory.intensive", HugePages: "2Mi", Sizes: []Size{
		{"large", 2, "16Gi"}, {"xlarge", 4, "32Gi"}, {"2xlarge", 8, "64Gi"}, {"4xlarge", 16, "128Gi"}, {"8xlarge", 32, "256Gi"}},
		Description: "Much memory for each processor. It asks for huge pages; the guest has ordinary ones here."},
}

// Preference has the settings that suit a guest best.
type Preference struct {
	Name, Display string
	OS            string // linux, or windows
	EFI           bool   // instead of a BIOS. It checks no signatures here
	Plain         bool   // devices that need no drivers of the guest
	Tablet        bool   // a pointer for those who look at its screen
	TPM           bool
	CPU           uint32 // that it needs at least
	Memory        string
}

// Preferences are those of upstream for x86 that work here.
var Preferences = append([]Preference{
	{Name: "alpine", Display: "Alpine Linux", OS: "linux", EFI: true, CPU: 1, Memory: "512Mi"},
	{Name: "centos.stream8", Display: "CentOS Stream 8", OS: "linux", CPU: 1, Memory: "1536Mi"},
	{Name: "centos.stream8.desktop", Display: "CentOS Stream 8 (desktop)", OS: "linux", Tablet: true, CPU: 1, Memory: "1536Mi"},
	{Name: "centos.stream9", Display: "CentOS Stream 9", OS: "linux", EFI: true, CPU: 1, Memory: "1536Mi"},
	{Name: "centos.stream9.desktop", Display: "CentOS Stream 9 (desktop)", OS: "linux", EFI: true, Tablet: true, CPU: 1, Memory: "1536Mi"},
	{Name: "centos.stream10", Display: "CentOS Stream 10", OS: "linux", EFI: true, CPU: 1, Memory: "2Gi"},
	{Name: "centos.stream10.desktop", Display: "CentOS Stream 10 (desktop)", OS: "linux", EFI: true, Tablet: true, CPU: 1, Memory: "2Gi"},
	{Name: "cirros", Display: "CirrOS", OS: "linux", CPU: 1, Memory: "256Mi"},
	{Name: "debian", Display: "Debian", OS: "linux", CPU: 1, Memory: "1Gi"},
	{Name: "fedora", Display: "Fedora", OS: "linux", EFI: true, CPU: 1, Memory: "2Gi"},
	{Name: "legacy", Display: "Guests without virtio drivers", OS: "linux", Plain: true},
	{Name: "linux", Display: "Linux", OS: "linux"},
	{Name: "linux.efi", Display: "Linux (EFI)", OS: "linux", EFI: true},
	{Name: "opensuse.leap", Display: "openSUSE Leap", OS: "linux", EFI: true, CPU: 1, Memory: "1Gi"},
	{Name: "opensuse.tumbleweed", Display: "openSUSE Tumbleweed", OS: "linux", EFI: true, CPU: 1, Memory: "1Gi"},
	{Name: "oraclelinux", Display: "Oracle Linux", OS: "linux", EFI: true, CPU: 1, Memory: "1536Mi"},
	{Name: "rhel.8", Display: "Red Hat Enterprise Linux 8", OS: "linux", CPU: 1, Memory: "1536Mi"},
	{Name: "rhel.8.desktop", Display: "Red Hat Enterprise Linux 8 (desktop)", OS: "linux", Tablet: true, CPU: 1, Memory: "1536Mi"},
	{Name: "rhel.9", Display: "Red Hat Enterprise Linux 9", OS: "linux", EFI: true, CPU: 1, Memory: "1536Mi"},
	{Name: "rhel.9.desktop", Display: "Red Hat Enterprise Linux 9 (desktop)", OS: "linux", EFI: true, Tablet: true, CPU: 1, Memory: "1536Mi"},
	{Name: "rhel.10", Display: "Red Hat Enterprise Linux 10", OS: "linux", EFI: true, CPU: 1, Memory: "2Gi"},
	{Name: "rhel.10.desktop", Display: "Red Hat Enterprise Linux 10 (desktop)", OS: "linux", EFI: true, Tablet: true, CPU: 1, Memory: "2Gi"},
	{Name: "sles", Display: "SUSE Linux Enterprise Server", OS: "linux", EFI: true, CPU: 1, Memory: "1Gi"},
	{Name: "ubuntu", Display: "Ubuntu", OS: "linux", EFI: true, CPU: 1, Memory: "2Gi"},
}, windows()...)

// windows has each release twice: with the devices that every Windows knows, and with virtio's, whose drivers have to be installed first.
func windows() []Preference {
	var all []Preference
	for _, p := range []Preference{
		{Name: "windows.10", Display: "Microsoft Windows 10", CPU: 1, Memory: "2Gi"},
		{Name: "windows.11", Display: "Microsoft Windows 11", EFI: true, TPM: true, CPU: 2, Memory: "4Gi"},
		{Name: "windows.2k16", Display: "Microsoft Windows Server 2016", CPU: 1, Memory: "512Mi"},
		{Name: "windows.2k19", Display: "Microsoft Windows Server 2019", CPU: 1, Memory: "512Mi"},
		{Name: "windows.2k22", Display: "Microsoft Windows Server 2022", EFI: true, TPM: true, CPU: 1, Memory: "512Mi"},
		{Name: "windows.2k25", Display: "Microsoft Windows Server 2025", EFI: true, TPM: true, CPU: 1, Memory: "512Mi"},
	} {
		p.OS, p.Tablet, p.Plain = "windows", true, true
		virtio := p
		virtio.Name, virtio.Display, virtio.Plain = p.Name+".virtio", p.Display+" (virtio)", false
		all = append(all, p, virtio)
	}
	return all
}
