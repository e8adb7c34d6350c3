package plan

import (
	"fmt"
	"net"
	"strconv"
)

const etcdURL = "http://127.0.0.1:2379"

// APIServerAddr returns where the API server listens, for machines and for the shell alike.
func APIServerAddr() string { return net.JoinHostPort(ControlIP, strconv.Itoa(APIServerPort)) }

func readyURL() string { return "https://" + APIServerAddr() + "/readyz" }

// Control returns the machine that runs the control plane: etcd, the Kubernetes control plane, DNS, the registry that images come
// from, the provisioner of the storage classes, and a kube-proxy so that Service addresses work from the shell.
func Control() Machine {
	l, api := Inside(), []string{readyURL()}
	return Machine{Name: ControlName, Components: []Component{
		{Name: "etcd", Args: etcdArgs(l)},
		{Name: "registry", Args: []string{"--listen", RegistryAddr, "--images", l.Images()}},
		{Name: "kube-apiserver", Args: apiserverArgs(l), Needs: []string{etcdURL + "/health"}},
		{Name: "kube-controller-manager", Args: controllerManagerArgs(l), Needs: api},
		{Name: "kube-scheduler", Args: schedulerArgs(l), Needs: api},
		{Name: "kube-proxy", Args: proxyArgs(l, ControlName, ControlIP), Needs: api},
		{Name: "coredns", Program: l.Program("coredns"), Args: []string{"-conf", l.Corefile()}, Needs: api},
		{Name: "provisioner", Args: []string{"--kubeconfig", l.PKI("kubebox.kubeconfig"), "--state", l.Dir}, Needs: api},
		{Name: "snapshot-controller", Program: l.Program("snapshot-controller"), Needs: api, Args: []string{
			"--kubeconfig", l.PKI("kubebox.kubeconfig"), "--leader-election=false",
			// A snapshot is taken by the sidecar on the node of its volume.
			"--enable-distributed-snapshotting=true",
		}},
	}}
}

func etcdArgs(l Layout) []string {
	peer := "http://127.0.0.1:2380"
	return []string{
		"--data-dir", l.Etcd(), "--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
		// A cluster for tests: its data need not survive a power cut, and syncing every write doubles the start time.
		"--unsafe-no-fsync", "--log-level", "warn",
	}
}

func apiserverArgs(l Layout) []string {
	return []string{
		"--etcd-servers", etcdURL,
		"--advertise-address", ControlIP, "--bind-address", "0.0.0.0", "--secure-port", strconv.Itoa(APIServerPort),
		"--service-cluster-ip-range", ServiceCIDR, "--allow-privileged=true",
		"--client-ca-file", l.PKI("ca.crt"), "--tls-cert-file", l.PKI("apiserver.crt"), "--tls-private-key-file", l.PKI("apiserver.key"),
		"--kubelet-client-certificate", l.PKI("admin.crt"), "--kubelet-client-key", l.PKI("admin.key"),
		"--kubelet-certificate-authority", l.PKI("ca.crt"), "--kubelet-preferred-address-types", "InternalIP",
		"--service-account-key-file", l.PKI("sa.pub"), "--service-account-signing-key-file", l.PKI("sa.key"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		// The aggregation layer. Aggregated API servers and webhooks are reached at their endpoints, because the control
		// plane is no node: its Service addresses are only as good as the kube-proxy beside it.
		"--enable-aggregator-routing=true",
		"--requestheader-client-ca-file", l.PKI("ca.crt"), "--requestheader-allowed-names", "front-proxy",
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"--proxy-client-cert-file", l.PKI("front-proxy.crt"), "--proxy-client-key-file", l.PKI("front-proxy.key"),
	}
}

func controllerManagerArgs(l Layout) []string {
	kubeconfig := l.PKI("controller-manager.kubeconfig")
	return []string{
		"--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig,
		"--service-account-private-key-file", l.PKI("sa.key"), "--root-ca-file", l.PKI("ca.crt"), "--use-service-account-credentials",
		"--cluster-cidr", PodCIDR, "--service-cluster-ip-range", ServiceCIDR, "--allocate-node-cidrs=false",
		"--cluster-signing-cert-file", l.PKI("ca.crt"), "--cluster-signing-key-file", l.PKI("ca.key"),
		"--leader-elect=false", "--bind-address", "127.0.0.1",
		// Nodes renew their lease every 5 s (node.go); six missed renewals make a node NotReady, not the 50 s of the default.
		"--node-monitor-grace-period", "30s",
	}
}

func schedulerArgs(l Layout) []string {
	kubeconfig := l.PKI("scheduler.kubeconfig")
	return []string{
		"--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig,
		"--leader-elect=false", "--bind-address", "127.0.0.1",
	}
}

func proxyArgs(l Layout, name, ip string) []string {
	return []string{
		"--kubeconfig", l.PKI("proxy.kubeconfig"), "--hostname-override", name, "--bind-address", ip,
		"--cluster-cidr", PodCIDR, "--proxy-mode", "nftables",
		// Connection tracking limits belong to the machine, not to a network namespace: leave them alone.
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0",
	}
}

// Corefile answers for the cluster's domain and for the machine itself. There is no way out to the Internet from the cluster
// network, so every other name does not exist, which is said at once instead of after a timeout. That is a server block of its own
// because CoreDNS asks its template plugin before all others, whatever their order here.
func Corefile() string {
	return fmt.Sprintf(`%[2]s in-addr.arpa {
    bind %[1]s
    errors
    ready %[1]s:8181
    kubernetes {
        kubeconfig %[3]s
        pods insecure
        ttl 5
    }
    cache 5
    loadbalance
}
%[4]s {
    bind %[1]s
    hosts {
        %[5]s %[4]s
    }
}
. {
    bind %[1]s
    template ANY ANY {
        rcode NXDOMAIN
    }
}
`, ControlIP, Domain, Inside().PKI("kubebox.kubeconfig"), HostName, HostIP)
}
