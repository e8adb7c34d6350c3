package plan

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// nodeMemory is the memory that a node offers to pods. Every node sees the whole machine; three of 6 GiB fit in one of 24 GiB, and
// memory is not promised twice. CPU is: each node offers every core of the machine, because tests wait more than they compute.
const nodeMemory = 6 << 30

// Capacity is the processors and memory of the machine.
type Capacity struct {
	MemoryBytes int64
}

// reserved returns how much of the machine's memory a node must hide so that nodeMemory is left, or a quarter of it on machines
// too small for three full nodes.
func (c Capacity) reserved() int64 {
	offer := int64(nodeMemory)
	if quarter := c.MemoryBytes / 4; quarter < offer {
		offer = quarter
	}
	return c.MemoryBytes - offer
}

// CgroupRoot is the cgroup all nodes live under.
const CgroupRoot = "kubebox"

// NodeMachine returns the machine that runs a node: containerd, kubelet, kube-proxy and the keeper of its static disks.
func NodeMachine(n Node) Machine {
	l, api, pool := Inside(), []string{readyURL()}, Pool()
	return Machine{Name: n.Name, Node: &n, Disks: StaticDisks(), Pool: &pool, Cgroup: CgroupRoot + "/" + n.Name, Components: []Component{
		{Name: "containerd", Program: "/usr/bin/containerd", Args: []string{"--config", l.Node(n.Name, "etc", "containerd.toml")}},
		{Name: "kubelet", Needs: api, Args: []string{
			"--config", l.Node(n.Name, "etc", "kubelet.yaml"), "--kubeconfig", l.PKI(n.Name + ".kubeconfig"),
			"--hostname-override", n.Name, "--node-ip", n.IP(), "--v", "2",
		}},
		{Name: "kube-proxy", Needs: api, Args: proxyArgs(l, n.Name, n.IP())},
		{Name: "disks", Needs: api, Args: []string{"--kubeconfig", l.PKI("kubebox.kubeconfig"), "--node", n.Name, "--spec", l.Spec(n.Name)}},
	}}
}

// NodeFiles returns the configuration files of a node, by their path below the node's directory.
func NodeFiles(n Node, c Capacity) (map[string]string, error) {
	config, err := kubeletConfig(n, c)
	if err != nil {
		return nil, fmt.Errorf("render kubelet configuration of %s: %w", n.Name, err)
	}
	return map[string]string{
		"etc/kubelet.yaml":                config,
		"etc/containerd.toml":             containerdConfig(n),
		"etc/cni/10-kubebox.conflist":     cniConfig(n),
		"etc/certs.d/_default/hosts.toml": mirrorConfig(),
	}, nil
}

func kubeletConfig(n Node, c Capacity) (string, error) {
	l, yes, no := Inside(), true, false
	cfg := kubelet.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		Address:  n.IP(),
		Authentication: kubelet.KubeletAuthentication{
			Anonymous: kubelet.KubeletAnonymousAuthentication{Enabled: &no},
			Webhook:   kubelet.KubeletWebhookAuthentication{Enabled: &yes},
			X509:      kubelet.KubeletX509Authentication{ClientCAFile: l.PKI("ca.crt")},
		},
		Authorization:             kubelet.KubeletAuthorization{Mode: kubelet.KubeletAuthorizationModeWebhook},
		TLSCertFile:               l.PKI(n.Name + ".crt"),
		TLSPrivateKeyFile:         l.PKI(n.Name + ".key"),
		ContainerRuntimeEndpoint:  "unix:///run/containerd/containerd.sock",
		CgroupDriver:              "cgroupfs",
		CgroupRoot:                "/" + CgroupRoot + "/" + n.Name,
		FailCgroupV1:              &no,
		FailSwapOn:                &no,
		OOMScoreAdj:               new(int32), // lowering it takes CAP_SYS_RESOURCE, which root does not have everywhere
		ClusterDNS:                []string{DNSIP},
		ClusterDomain:             Domain,
		ResolverConfig:            new(string),
		VolumePluginDir:           "/var/lib/kubelet/volumeplugins",
		NodeStatusUpdateFrequency: metav1.Duration{Duration: 5 * time.Second},
		NodeLeaseDurationSeconds:  20,
		// How soon the kubelet grows a file system whose claim has grown; the default is a minute.
		SyncFrequency: metav1.Duration{Duration: 10 * time.Second},
		// Page cache counts as used memory here, and the disk is the machine's: neither may evict pods for what others do.
		EvictionHard: map[string]string{
			"memory.available": "0%", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%",
		},
		ImageGCHighThresholdPercent: new(int32(100)),
		MakeIPTablesUtilChains:      &no,
		SystemReserved:              map[string]string{"memory": fmt.Sprint(c.reserved())},
		// Capacity guides the scheduler; limiting all pods of a node together would only throttle the page cache.
		EnforceNodeAllocatable: []string{"none"},
		MaxParallelImagePulls:  new(int32(4)),
		SerializeImagePulls:    &no,
		// Every image comes from the cluster's own registry, which knows no users.
		ImagePullCredentialsVerificationPolicy: kubelet.NeverVerify,
	}
	out, err := yaml.Marshal(cfg)
	return string(out), err
}

func containerdConfig(n Node) string {
	etc := Inside().Node(n.Name, "etc")
	return fmt.Sprintf(`version = 2
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing",
]

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  max_concurrent_downloads = 4
  # A Block volume belongs to the user the pod runs as; otherwise only root could open it.
  device_ownership_from_security_context = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    discard_unpacked_layers = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q
`, PauseImage, etc+"/cni", etc+"/certs.d")
}

// mirrorConfig sends every pull, whatever registry the image's name tells, to the cluster's own registry.
func mirrorConfig() string {
	return fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+RegistryAddr, "http://"+RegistryAddr)
}

var registryName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$`)

// TrustFiles returns the configuration files, by their path below a node's directory, by which it pulls from a registry itself,
// over TLS and by that authority. containerd reads them at every pull.
func TrustFiles(registry, authority string) (map[string]string, error) {
	if !registryName.MatchString(registry) {
		return nil, fmt.Errorf("%q is no registry: name its host, and its port after a colon if it has one", registry)
	}
	if block, _ := pem.Decode([]byte(authority)); block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("the file of the registry's authority holds no certificate")
	}
	dir, server := "etc/certs.d/"+registry+"/", "https://"+registry
	return map[string]string{
		dir + "ca.crt":     authority,
		dir + "hosts.toml": fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = \"ca.crt\"\n", server, server),
	}, nil
}

// cniConfig routes to every pod instead of bridging: with a bridge, the answer of a Service's pod to a pod on the same node
// would bypass connection tracking on machines without br_netfilter.
func cniConfig(n Node) string {
	type object = map[string]any
	out, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0", "name": "kubebox",
		"plugins": []object{
			{"type": "ptp", "ipMasq": false, "ipam": object{
				"type": "host-local", "ranges": [][]object{{{"subnet": n.PodCIDR()}}}, "routes": []object{{"dst": "0.0.0.0/0"}},
			}},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		panic(err) // maps of strings always marshal
	}
	return string(out)
}
