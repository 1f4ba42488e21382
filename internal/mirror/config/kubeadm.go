package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/theseus-cni/theseus/internal/mirror/splice"
)

const kubeadmGroup = "kubeadm.k8s.io"

// kubeadm makes the mirror's configuration of what kubeadm init --config takes, or the ConfigMap kubeadm-config has.
func (j *job) kubeadm(cluster *object) error {
	if err := j.only(cluster); err != nil {
		return err
	}
	if j.Network != "" || j.Surge {
		return &Usage{fmt.Errorf("--to and --surge: kubeadm's configuration names no network and replaces no nodes"),
			"install the network beside it; make the mirror's configuration with --name"}
	}
	if problems := validation.IsDNS1123Subdomain(j.Name); len(problems) > 0 {
		return &Usage{fmt.Errorf("--name %s: %s", j.Name, problems[0]), "such as --name green"}
	}
	if j.State != "" {
		return &Usage{fmt.Errorf("--state: only kops has a state store"), "leave it out"}
	}
	if len(cluster.Content) == 0 {
		return &splice.Error{File: cluster.file.Name, Line: cluster.Line,
			Err:    fmt.Errorf("an empty ClusterConfiguration"),
			Advice: "give what kubectl -n kube-system get configmap kubeadm-config prints below data"}
	}
	old := splice.Text(cluster.Node, "clusterName")
	if old == j.Name {
		return &Usage{fmt.Errorf("the mirror would have the name of the original, %s", old),
			"give it another with --name"}
	}
	j.put(cluster, cluster.Node, "clusterName", j.Name, "clusterName",
		"the mirror's name, by which kubeconfig files know it")
	if node := splice.Get(cluster.Node, "clusterName"); node != nil {
		j.done[node] = true
	}
	j.clusterConfiguration(cluster, cluster.Node, "")
	joined, ok, err := j.choose(cluster, cluster.Node, "peering", "are pods or Services of the two clusters routed "+
		"to each other, now or later (peering, BGP, a cluster mesh)?", "yes", "no")
	if err != nil {
		return err
	}
	if ok && joined == "yes" {
		for _, key := range []string{"podSubnet", "serviceSubnet"} {
			node := splice.Get(cluster.Node, "networking", key)
			if node == nil || node.Value == "" {
				continue
			}
			if strings.Contains(node.Value, ",") {
				return &splice.Error{File: cluster.file.Name, Line: node.Line,
					Err:    fmt.Errorf("networking.%s has two ranges: they are not changed here yet", key),
					Advice: "change them by hand, and answer peering=no"}
			}
			if err := j.ownRange(cluster, node, "networking."+key); err != nil {
				return err
			}
		}
		j.note("KubeletConfiguration.clusterDNS and KubeProxyConfiguration.clusterCIDR follow from the ranges: look " +
			"at them where they are written down")
	}
	for _, o := range j.objects {
		if o.kind == "InitConfiguration" || o.kind == "JoinConfiguration" {
			if err := j.only(o); err != nil {
				return err
			}
			j.nodeConfiguration(o, o.Node, "")
		}
	}
	j.note("no keys are copied: kubeadm makes the mirror's authorities in its certificatesDir, which must be empty")
	if old != "" && old != "kubernetes" {
		j.mentions(old, nil)
	}
	return nil
}

// kubeadmSpec is what Cluster API carries of kubeadm's configuration.
func (j *job) kubeadmSpec(o *object, spec *yaml.Node, path string) {
	if configuration := splice.Get(spec, "clusterConfiguration"); configuration != nil {
		j.clusterConfiguration(o, configuration, path+".clusterConfiguration.")
	}
	for _, key := range []string{"initConfiguration", "joinConfiguration"} {
		if configuration := splice.Get(spec, key); configuration != nil {
			j.nodeConfiguration(o, configuration, path+"."+key+".")
		}
	}
	for i, file := range splice.Items(spec, "files") {
		secret := splice.Get(file, "contentFrom", "secret")
		j.outside(o, secret, "name", fmt.Sprintf("%s.files.%d.contentFrom.secret.name", path, i),
			"a Secret of the original, and Secrets are not copied")
	}
}

// clusterConfiguration asks for the address of the API server, and about an etcd outside.
func (j *job) clusterConfiguration(o *object, node *yaml.Node, path string) {
	if endpoint := splice.Get(node, "controlPlaneEndpoint"); endpoint != nil && endpoint.Value != "" {
		j.done[endpoint] = true
		from := endpoint.Value
		text := path + "controlPlaneEndpoint is " + from +
			", the original's API server: which address has the mirror's?"
		if answer, ok := j.ask(o, endpoint, "controlPlaneEndpoint", text, "VALUE"); ok && answer == "drop" {
			j.drop(o, node, "controlPlaneEndpoint", path+"controlPlaneEndpoint",
				"decided: the infrastructure gives the mirror one")
		} else if ok {
			old, port := splitPort(from)
			mirror, own := splitPort(answer)
			if own == "" {
				answer += port
			}
			j.set(o, endpoint, path+"controlPlaneEndpoint", answer, "decided: the mirror's API server")
			j.names509(o, node, path, old, mirror)
		}
	}
	etcd := splice.Get(node, "etcd", "external")
	j.outsideItems(o, etcd, "endpoints", path+"etcd.external.endpoints",
		"two clusters in one etcd would overwrite each other", always)
}

// splitPort cuts an address like host:6443 or [::1]:6443; the port keeps its colon, and is empty where there is none.
func splitPort(address string) (host, port string) {
	if i := strings.LastIndexByte(address, ':'); i >= 0 &&
		(address[0] == '[' && address[i-1] == ']' || strings.Count(address, ":") == 1) {
		address, port = address[:i], address[i:]
	}
	return strings.Trim(address, "[]"), port
}

// names509 puts the mirror's API server into the names of its certificate.
func (j *job) names509(o *object, node *yaml.Node, path, old, mirror string) {
	sans := splice.Items(node, "apiServer", "certSANs")
	if slices.ContainsFunc(sans, func(san *yaml.Node) bool { return san.Value == mirror }) {
		return
	}
	for i, san := range sans {
		if san.Value == old {
			j.set(o, san, fmt.Sprintf("%sapiServer.certSANs.%d", path, i), mirror,
				"the name of the mirror's API server")
		}
	}
}

// nodeConfiguration takes tokens and keys out, and asks about what is one node's.
func (j *job) nodeConfiguration(o *object, node *yaml.Node, path string) {
	j.drop(o, node, "bootstrapTokens", path+"bootstrapTokens",
		"a key: keys are not copied, kubeadm makes a token of its own")
	j.drop(o, node, "certificateKey", path+"certificateKey", "a key: keys are not copied")
	j.drop(o, splice.Get(node, "controlPlane"), "certificateKey", path+"controlPlane.certificateKey",
		"a key: keys are not copied")
	const one = "one machine of the original"
	j.outside(o, splice.Get(node, "localAPIEndpoint"), "advertiseAddress",
		path+"localAPIEndpoint.advertiseAddress", one)
	j.outside(o, splice.Get(node, "controlPlane", "localAPIEndpoint"), "advertiseAddress",
		path+"controlPlane.localAPIEndpoint.advertiseAddress", one)
	if name := splice.Text(node, "nodeRegistration", "name"); !strings.Contains(name, "{{") {
		j.outside(o, splice.Get(node, "nodeRegistration"), "name", path+"nodeRegistration.name", one)
	}
	token := splice.Get(node, "discovery", "bootstrapToken")
	j.outside(o, token, "token", path+"discovery.bootstrapToken.token",
		"a key of the original: kubeadm token create on the mirror prints another")
	j.outside(o, token, "apiServerEndpoint", path+"discovery.bootstrapToken.apiServerEndpoint",
		"the original's API server")
	j.outsideItems(o, token, "caCertHashes", path+"discovery.bootstrapToken.caCertHashes",
		"the hash of the original's authority: kubeadm token create --print-join-command prints the mirror's", always)
	j.drop(o, splice.Get(node, "discovery"), "tlsBootstrapToken", path+"discovery.tlsBootstrapToken",
		"a key: keys are not copied")
}
