package machine

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// Where things are inside a machine; the names are kubeadm's where it has one.
const (
	caFile            = "/etc/kubernetes/pki/ca.crt"
	kubeletClientCert = "/etc/kubernetes/pki/kubelet-client.crt"
	kubeletClientKey  = "/etc/kubernetes/pki/kubelet-client.key"
	kubeletServerCert = "/etc/kubernetes/pki/kubelet.crt"
	kubeletServerKey  = "/etc/kubernetes/pki/kubelet.key"
	kubeletKubeconfig = "/etc/kubernetes/kubelet.conf"
	proxyKubeconfig   = "/etc/kubernetes/kube-proxy.conf"
	kubeletConfig     = "/etc/kubernetes/kubelet-config.yaml"
	proxyConfig       = "/etc/kubernetes/kube-proxy-config.yaml"
	containerdConfig  = "/etc/kubernetes/containerd.toml"
)

// Files lists the files of node n.
func Files(l spec.Lab, secrets *pki.Lab, n int) []spec.File {
	name, server := l.NodeName(n), l.APIServer()
	conf, _ := l.CNIDirs()
	client, serving := secrets.NodeClient[n-1], secrets.NodeServer[n-1]
	files := []spec.File{
		{Path: caFile, Mode: 0o644, Content: secrets.CA},
		{Path: kubeletClientCert, Mode: 0o644, Content: client.Cert},
		{Path: kubeletClientKey, Mode: 0o600, Content: client.Key},
		{Path: kubeletServerCert, Mode: 0o644, Content: serving.Cert},
		{Path: kubeletServerKey, Mode: 0o600, Content: serving.Key},
		{Path: kubeletKubeconfig, Mode: 0o600, Content: pki.Kubeconfig(l.Name, server, secrets.CA, client)},
		{Path: proxyKubeconfig, Mode: 0o600, Content: pki.Kubeconfig(l.Name, server, secrets.CA, secrets.Proxy)},
		{Path: kubeletConfig, Mode: 0o644, Content: KubeletConfig(l)},
		{Path: proxyConfig, Mode: 0o644, Content: ProxyConfig(l, proxyKubeconfig)},
		{Path: containerdConfig, Mode: 0o644, Content: containerdTOML(l)},
		{Path: "/etc/hosts", Mode: 0o644, Content: hosts(l)},
		// Every machine has one of its own; Weave Net makes a peer's name of it.
		{Path: "/etc/machine-id", Mode: 0o444, Content: machineID(name)},
		{Path: "/etc/hostname", Mode: 0o644, Content: []byte(name + "\n")},
		// The gateway answers port 53 with "unreachable" at once: a lab resolves no name of the outside.
		{Path: "/etc/resolv.conf", Mode: 0o644, Content: fmt.Appendf(nil, "nameserver %s\n", l.GatewayIP())},
	}
	for _, f := range network.NodeFiles(l.Network, network.Params{
		PodCIDR: l.PodCIDR(), NodePodCIDR: l.NodePodCIDR(n), ServiceCIDR: l.ServiceCIDR(), DNS: l.DNSIP(),
		ConfDir: conf,
	}) {
		files = append(files, spec.File{Path: f.Path, Mode: uint32(f.Mode), Content: f.Content})
	}
	return files
}

// machineID makes what systemd would have made once at random; the same machine has the same one.
func machineID(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return fmt.Appendf(nil, "%x\n", sum[:16])
}

func hosts(l spec.Lab) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "127.0.0.1 localhost\n%s %s-controlplane\n", l.ControlPlaneIP(), l.Name)
	for _, n := range l.Numbers() {
		fmt.Fprintf(&b, "%s %s\n", l.NodeIP(n), l.NodeName(n))
	}
	return []byte(b.String())
}

// KubeletConfig is the kubelet's configuration file.
func KubeletConfig(l spec.Lab) []byte {
	return fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %s}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
clusterDNS: [%s]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://%s
evictionHard:
  memory.available: 0%%
  nodefs.available: 0%%
  nodefs.inodesFree: 0%%
  imagefs.available: 0%%
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
maxOpenFiles: 20000
oomScoreAdj: 0
resolvConf: /etc/resolv.conf
rotateCertificates: false
serializeImagePulls: false
tlsCertFile: %s
tlsPrivateKeyFile: %s
`, caFile, l.DNSIP(), Socket, kubeletServerCert, kubeletServerKey)
}

// ProxyConfig is kube-proxy's configuration file. Its conntrack limits are the host's: a network
// namespace cannot write them.
func ProxyConfig(l spec.Lab, kubeconfig string) []byte {
	return fmt.Appendf(nil, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %s}
clusterCIDR: %s
conntrack: {maxPerCore: 0, min: 0}
mode: %s
oomScoreAdj: 0
`, kubeconfig, l.AllPods(), l.ProxyMode)
}

func containerdTOML(l spec.Lab) []byte {
	conf, bin := l.CNIDirs()
	return fmt.Appendf(nil, `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "registry.k8s.io/pause:3.10"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/etc/containerd/certs.d"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %q
conf_dir = %q
`, bin, conf)
}
