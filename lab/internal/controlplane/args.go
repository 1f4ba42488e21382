package controlplane

import (
	"cmp"
	"fmt"
	"path/filepath"
)

// Components lists the names of the components, which are also the names of their logs.
func Components() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

// Ports are those on loopback on which a control plane listens.
type Ports struct{ API, Etcd, Peer int }

// usual are the ports in a namespace of the control plane's own.
var usual = Ports{API: 6443, Etcd: 2379, Peer: 2380}

// Commands are the command lines of the components, in the order of Components.
func (c Config) Commands() [][]string {
	return [][]string{c.etcd(), c.apiserver(), c.controllerManager(), c.scheduler()}
}

func (c Config) ports() Ports { return cmp.Or(c.Ports, usual) }

func (c Config) pki(name string) string { return filepath.Join(c.PKI, name) }

// Operator is the name of a user whose requests are in the audit log, as are those of every ServiceAccount in the
// namespace default: tests run Theseus as one of these.
const Operator = "theseus"

// Agents is the name of the user of Theseus' agents.
const Agents = "system:serviceaccount:theseus-system:theseus-agent"

// audit is the policy of the audit log: requests of operators and of the Audited, and of no other users.
func (c Config) audit() string {
	rules := ""
	for _, user := range append([]string{Operator}, c.Audited...) {
		rules += "- {level: Metadata, users: [\"" + user + "\"]}\n"
	}
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
` + rules + `- {level: Metadata, userGroups: ["system:serviceaccounts:default"]}
- {level: None}
`
}

// AuditLogs are the files of the audit log until now: it begins another one before one has 100 MB.
func (c Config) AuditLogs() ([]string, error) {
	return filepath.Glob(filepath.Join(c.Logs, AuditName+"*.log"))
}

// AuditLog is the file of the audit log that is written now.
func (c Config) AuditLog() string { return filepath.Join(c.Logs, AuditName+".log") }

// AuditName is the name of the audit log among the logs of the components.
const AuditName = "audit"

func (c Config) etcd() []string {
	clients, peers := local(c.ports().Etcd), local(c.ports().Peer)
	return []string{
		"etcd", "--name=lab", "--data-dir=" + filepath.Join(c.Data, "etcd"),
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers,
		"--initial-cluster=lab=" + peers,
		// A lab is recreated after a power failure, so etcd need not sync to disk.
		"--unsafe-no-fsync", "--log-level=warn",
	}
}

func local(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

func (c Config) apiserver() []string {
	return []string{
		"kube-apiserver",
		"--etcd-servers=" + local(c.ports().Etcd),
		"--advertise-address=" + c.Lab.ControlPlaneIP().String(),
		"--bind-address=0.0.0.0", fmt.Sprintf("--secure-port=%d", c.ports().API),
		"--service-cluster-ip-range=" + c.Lab.ServiceCIDR().String(),
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--client-ca-file=" + c.pki("ca.crt"),
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--kubelet-client-certificate=" + c.pki("kubelet-client.crt"),
		"--kubelet-client-key=" + c.pki("kubelet-client.key"), "--kubelet-certificate-authority=" + c.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki("sa.pub"), "--service-account-signing-key-file=" + c.pki("sa.key"),
		"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.pki("front-proxy-client.key"), "--enable-aggregator-routing=true",
		"--audit-policy-file=" + c.pki("audit.yaml"), "--audit-log-path=" + c.AuditLog(),
		"--profiling=false",
	}
}

func (c Config) controllerManager() []string {
	kubeconfig := c.pki("controller-manager.conf")
	return []string{
		"kube-controller-manager",
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--leader-elect=false", "--use-service-account-credentials=true",
		"--root-ca-file=" + c.pki("ca.crt"), "--service-account-private-key-file=" + c.pki("sa.key"),
		"--cluster-signing-cert-file=" + c.pki("ca.crt"), "--cluster-signing-key-file=" + c.pki("ca.key"),
		"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"),
		"--allocate-node-cidrs=true", "--cluster-cidr=" + c.Lab.PodCIDR().String(), "--node-cidr-mask-size=24",
		"--service-cluster-ip-range=" + c.Lab.ServiceCIDR().String(),
		// The defaults of 20 and 30 delay the first service accounts by about 5 s.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--profiling=false",
	}
}

func (c Config) scheduler() []string {
	kubeconfig := c.pki("scheduler.conf")
	return []string{
		"kube-scheduler",
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=1000", "--profiling=false",
	}
}
