package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/theseus-cni/theseus/internal/mirror/splice"
)

const (
	kopsGroup    = "kops.k8s.io"
	kopsLabel    = "kops.k8s.io/cluster"
	gossipSuffix = ".k8s.local"
)

// kopsJob is the conversion of a cluster of kops.
type kopsJob struct {
	*job
	cluster *object
	spec    *yaml.Node
	groups  []*object
	id      *identity
}

func (j *job) kops(cluster *object) error {
	if cluster.version != "v1alpha2" {
		return &splice.Error{File: cluster.file.Name, Line: cluster.Line, Err: fmt.Errorf("version %s of kops' API",
			cluster.version), Advice: "give what kops get -o yaml prints: v1alpha2"}
	}
	if err := j.only(cluster); err != nil {
		return err
	}
	k := &kopsJob{job: j, cluster: cluster, spec: splice.Get(cluster.Node, "spec")}
	if cluster.name == "" || k.spec == nil || k.spec.Kind != yaml.MappingNode || len(k.spec.Content) == 0 {
		return &splice.Error{File: cluster.file.Name, Line: cluster.Line,
			Err: fmt.Errorf("a Cluster without name or spec"), Advice: "give what kops get --name NAME -o yaml prints"}
	}
	if err := k.collectGroups(); err != nil {
		return err
	}
	if j.Name != "" {
		if err := k.mirror(); err != nil {
			return err
		}
	}
	if j.Network != "" {
		if err := k.network(); err != nil {
			return err
		}
	}
	if j.Surge {
		k.surge()
	}
	return nil
}

func (k *kopsJob) collectGroups() error {
	for _, o := range k.objects {
		if o.kind != "InstanceGroup" || o.group != kopsGroup && o.group != "kops" {
			continue
		}
		if of := splice.Text(o.Node, "metadata", "labels", kopsLabel); of != k.cluster.name {
			return &splice.Error{File: o.file.Name, Line: o.Line,
				Err:    fmt.Errorf("InstanceGroup %s is of cluster %q, not of %s", o.name, of, k.cluster.name),
				Advice: "give one cluster and its groups: kops get --name " + k.cluster.name + " -o yaml"}
		}
		k.groups = append(k.groups, o)
	}
	if len(k.groups) == 0 {
		return &splice.Error{File: k.cluster.file.Name, Line: k.cluster.Line,
			Err:    fmt.Errorf("cluster %s has no InstanceGroup here", k.cluster.name),
			Advice: "give them too: kops get --name " + k.cluster.name + " -o yaml prints both"}
	}
	return nil
}

// serverFields takes out what kops' store keeps of an object, and what its users do not write.
func (k *kopsJob) serverFields() {
	for _, o := range append([]*object{k.cluster}, k.groups...) {
		meta := splice.Get(o.Node, "metadata")
		for _, key := range []string{"creationTimestamp", "generation", "resourceVersion", "uid", "managedFields"} {
			k.drop(o, meta, key, "metadata."+key, "the store writes it")
		}
		k.drop(o, o.Node, "status", "status", "the cluster writes it")
	}
}

// checkName refuses names that the mirror cannot have.
func (k *kopsJob) checkName() error {
	old, name := k.cluster.name, k.Name
	dns := splice.Text(k.spec, "topology", "dns", "type")
	switch problems := validation.IsDNS1123Subdomain(name); {
	case len(problems) > 0:
		return &Usage{fmt.Errorf("--name %s: %s", name, problems[0]), "such as --name green.example.com"}
	case name == old:
		return &Usage{fmt.Errorf("the mirror would have the name of the original, %s", old),
			"give it another with --name"}
	case !strings.Contains(name, ".") && dns != "None":
		return &Usage{fmt.Errorf("--name %s has no domain, and kops makes DNS names below it", name),
			"such as --name green.example.com"}
	case dns != "None" && strings.HasSuffix(name, gossipSuffix) != strings.HasSuffix(old, gossipSuffix):
		return &Usage{fmt.Errorf("only one of %s and %s ends in %s: kops would discover the API servers of the mirror "+
			"differently", old, name, gossipSuffix), "give both names that suffix, or neither"}
	}
	return nil
}

// named are fields that must name the cluster: where they do not, both clusters would have the same.
var named = []struct{ path, why, shared string }{
	{"configBase", "where the cluster's nodes read its configuration",
		"the two clusters would overwrite each other's configuration and keys"},
	{"configStore", "where the cluster's configuration is kept",
		"the two clusters would overwrite each other's configuration"},
	{"keyStore", "where the cluster's keys are kept: the mirror makes its own, none is copied",
		"the two clusters would have the same keys"},
	{"secretStore", "where the cluster's secrets are kept: the mirror makes its own, none is copied",
		"the two clusters would have the same secrets"},
	{"masterPublicName", "the name of the API server", "both API servers would have one name"},
	{"masterInternalName", "the name of the API server inside", "both API servers would have one name"},
	{"serviceAccountIssuerDiscovery.discoveryStore", "where the keys of the token issuer are published",
		"the two clusters would publish their keys over each other, and cloud roles would trust the wrong ones"},
	{"kubeAPIServer.serviceAccountIssuer", "who issues the tokens",
		"tokens of either cluster would look like the other's"},
	{"kubeAPIServer.serviceAccountJWKSURI", "where the keys of the token issuer are read",
		"the keys of the other cluster would be read"},
}

// mirror makes the configuration of the mirror.
func (k *kopsJob) mirror() error {
	if err := k.checkName(); err != nil {
		return err
	}
	k.result.Names = k.derived()
	k.id = newIdentity(k.cluster.name, k.Name, k.result.Names)
	k.leaveKeys()
	k.serverFields()
	k.set(k.cluster, splice.Get(k.cluster.Node, "metadata", "name"), "metadata.name", k.Name, "the mirror's name")
	for _, g := range k.groups {
		k.set(g, splice.Get(g.Node, "metadata", "labels", kopsLabel), "metadata.labels."+kopsLabel, k.Name,
			"the cluster that the group is of")
	}
	k.stores()
	k.zone()
	if err := k.place(); err != nil {
		return err
	}
	k.once()
	for _, role := range []string{"master", "node", "bastion", "apiserver"} {
		k.policy(role)
	}
	k.mentions(k.cluster.name, k.id)
	k.secrets()
	if has := k.has(); k.Network == "" &&
		slices.Contains([]string{"weave", "canal", "romana", "lyftvpc", "classic", "external"}, has) {
		k.note("kops 1.31 and newer make no new cluster with %s: give the mirror another network with --to, or use "+
			"the kops that made the original", has)
	}
	return nil
}

// derived are the names that kops gives in the cloud, before and after.
func (k *kopsJob) derived() []Name {
	var groups []group
	for _, g := range k.groups {
		groups = append(groups, group{g.name, splice.Text(g.Node, "spec", "role")})
	}
	var subnets []string
	for _, subnet := range splice.Items(k.spec, "subnets") {
		if splice.Text(subnet, "id") == "" {
			subnets = append(subnets, splice.Text(subnet, "name"))
		}
	}
	var accounts [][2]string
	for _, permission := range splice.Items(k.spec, "iam", "serviceAccountExternalPermissions") {
		accounts = append(accounts, [2]string{splice.Text(permission, "namespace"), splice.Text(permission, "name")})
	}
	names := derive(k.cluster.name, groups, subnets, accounts)
	for i, other := range derive(k.Name, groups, subnets, accounts) {
		names[i].New = other.Old
	}
	return names
}

// leaveKeys takes out the objects that are keys.
func (k *kopsJob) leaveKeys() {
	for _, o := range slices.Clone(k.objects) {
		if slices.Contains([]string{"Keyset", "SSHCredential", "Secret"}, o.kind) {
			k.dropObject(o, "a key: keys are not copied, the mirror has its own")
		}
	}
}

// stores changes the fields that must name the cluster.
func (k *kopsJob) stores() {
	for _, field := range named {
		steps := strings.Split(field.path, ".")
		k.mustName(splice.Get(k.spec, steps...), "spec."+field.path, field.why, field.shared)
	}
	for _, cluster := range splice.Items(k.spec, "etcdClusters") {
		path := "spec.etcdClusters." + splice.Text(cluster, "name") + ".backups.backupStore"
		k.mustName(splice.Get(cluster, "backups", "backupStore"), path,
			"where etcd is backed up to, and read from when it is empty",
			"the mirror would start from the original's backups, and write over them")
	}
}

// mustName changes a field that holds the cluster's name, and asks about one that does not.
func (k *kopsJob) mustName(node *yaml.Node, path, why, shared string) {
	if node == nil || node.Value == "" {
		return
	}
	k.done[node] = true
	to := k.id.rewrite(node.Value)
	if k.State != "" && path == "spec.configBase" {
		to = strings.TrimSuffix(k.State, "/") + "/" + k.Name
	} else if k.State != "" {
		to = k.inState(to)
	}
	if to == node.Value {
		answer, ok := k.ask(k.cluster, node, k.cluster.short(path),
			fmt.Sprintf("%s is %s, which does not name the cluster: %s", path, node.Value, shared), "VALUE", "keep")
		if !ok || answer == "keep" {
			return
		}
		to, why = answer, "decided: "+why
	}
	if bucket(to) != bucket(node.Value) {
		k.note("%s must be there before the mirror is made (%s)", bucket(to), path)
	}
	k.set(k.cluster, node, path, to, why)
}

// bucket is the first part of an address like s3://bucket/path; empty for what is no such address.
func bucket(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || strings.HasPrefix(scheme, "http") {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + name
}

// inState moves a path from the original's state store to the mirror's.
func (k *kopsJob) inState(path string) string {
	base := splice.Text(k.spec, "configBase")
	for _, change := range k.result.Changes {
		if change.Path == "spec.configBase" {
			base = change.From
		}
	}
	store, found := strings.CutSuffix(strings.TrimSuffix(base, "/"), "/"+k.cluster.name)
	if rest, ok := strings.CutPrefix(path, store+"/"); found && ok {
		return strings.TrimSuffix(k.State, "/") + "/" + rest
	}
	return path
}

// zone decides about the DNS zone: its own one, or one that both names are in.
func (k *kopsJob) zone() {
	node := splice.Get(k.spec, "dnsZone")
	if node == nil || node.Value == "" {
		return
	}
	k.done[node] = true
	zone := strings.TrimSuffix(node.Value, ".")
	switch {
	case zone == k.cluster.name:
		k.set(k.cluster, node, "spec.dnsZone", k.Name,
			"the zone of the cluster's own name: the mirror has its own, which must be there before it is made")
	case strings.HasSuffix(k.Name, "."+zone):
		// one zone for both
	default:
		text := fmt.Sprintf("spec.dnsZone is %s, and it does not follow from the name that %s is in it",
			node.Value, k.Name)
		if answer, ok := k.ask(k.cluster, node, "dnsZone", text, "keep", "VALUE"); ok && answer != "keep" {
			k.set(k.cluster, node, "spec.dnsZone", answer, "decided: the zone that the mirror's names are in")
		}
	}
}

// once asks about what is there only once, outside of the cluster.
func (k *kopsJob) once() {
	names := k.id.in
	if balancer := splice.Get(k.spec, "api", "loadBalancer"); balancer != nil {
		k.outside(k.cluster, balancer, "sslCertificate", "spec.api.loadBalancer.sslCertificate",
			"a certificate for the original's API server")
		for i, subnet := range splice.Items(balancer, "subnets") {
			path := fmt.Sprintf("spec.api.loadBalancer.subnets.%d.", i)
			k.outside(k.cluster, subnet, "allocationId", path+"allocationId",
				"an address that the original's load balancer has")
			k.outside(k.cluster, subnet, "privateIPv4Address", path+"privateIPv4Address",
				"an address that the original's load balancer has")
		}
	}
	for _, key := range []string{"gossipConfig", "dnsControllerGossipConfig"} {
		for _, path := range [][]string{{key}, {key, "secondary"}} {
			if config := splice.Get(k.spec, path...); splice.Text(config, "secret") != "" {
				k.outside(k.cluster, config, "secret", "spec."+strings.Join(path, ".")+".secret",
					"a key, and keys are not copied")
			}
		}
	}
	if policies := splice.Get(k.spec, "externalPolicies"); policies != nil && policies.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(policies.Content); i += 2 {
			role := policies.Content[i].Value
			k.outsideItems(k.cluster, policies, role, "spec.externalPolicies."+role,
				"a policy that names the original", names)
		}
	}
	if iam := splice.Get(k.spec, "iam"); names(splice.Text(iam, "permissionsBoundary")) {
		k.outside(k.cluster, iam, "permissionsBoundary", "spec.iam.permissionsBoundary",
			"a policy that names the original")
	}
	for i, permission := range splice.Items(k.spec, "iam", "serviceAccountExternalPermissions") {
		path := fmt.Sprintf("spec.iam.serviceAccountExternalPermissions.%d.aws.policyARNs", i)
		k.outsideItems(k.cluster, splice.Get(permission, "aws"), "policyARNs", path,
			"a policy that names the original", names)
	}
	if key := splice.Get(k.spec, "sshKeyName"); key != nil {
		k.done[key] = true // a key pair may serve both
	}
	for _, g := range k.groups {
		k.onceOfGroup(g)
	}
}

// policy asks about a policy that names the cluster: what the mirror may use of the original's is no matter of names.
func (k *kopsJob) policy(role string) {
	node := splice.Get(k.spec, "additionalPolicies", role)
	if node == nil || node.Kind != yaml.ScalarNode || !k.id.in(node.Value) {
		return
	}
	path := "spec.additionalPolicies." + role
	text := path + " names the cluster: " + shorten(theLine(node.Value, k.id.rewrite(node.Value))) +
		". keep: the mirror's nodes may use the same as the original's; rewrite: what has the mirror's name"
	if answer, ok := k.ask(k.cluster, node, k.cluster.short(path), text, "keep", "rewrite"); ok && answer == "rewrite" {
		return // as every other mention
	}
	k.done[node] = true
}

func (k *kopsJob) onceOfGroup(g *object) {
	spec := splice.Get(g.Node, "spec")
	if iam := splice.Get(spec, "iam"); iam != nil {
		if node := splice.Get(iam, "profile"); node != nil && k.id.in(node.Value) {
			k.set(g, node, "spec.iam.profile", k.id.rewrite(node.Value),
				"the instance profile of the mirror's nodes: theirs must be there before the mirror is made")
		} else {
			k.outside(g, iam, "profile", "spec.iam.profile", "the nodes of both clusters would have the same rights")
		}
	}
	balancers := splice.Get(spec, "externalLoadBalancers")
	kept := len(splice.Items(balancers))
	for i, balancer := range slices.Clone(splice.Items(balancers)) {
		for _, key := range []string{"loadBalancerName", "targetGroupArn"} {
			node := splice.Get(balancer, key)
			if node == nil {
				continue
			}
			k.done[node] = true
			path := fmt.Sprintf("spec.externalLoadBalancers.%d", i)
			text := fmt.Sprintf("%s is %s: nodes of the mirror would take the original's traffic as soon as they "+
				"are there", path, node.Value)
			answer, ok := k.ask(g, node, g.short(path), text, "drop", "VALUE", "keep")
			switch {
			case !ok || answer == "keep":
			case answer != "drop":
				k.set(g, node, path+"."+key, answer, "decided: the mirror's own load balancer")
			case kept == 1:
				k.drop(g, spec, "externalLoadBalancers", "spec.externalLoadBalancers",
					"decided: "+g.short(path)+"=drop")
			default:
				kept--
				k.change(g, node, path, node.Value, "", "decided: "+g.short(path)+"=drop")
				g.file.RemoveItem(balancers, balancer)
			}
		}
	}
}

// secrets says which keys the mirror needs before it is made.
func (k *kopsJob) secrets() {
	if splice.Text(k.spec, "encryptionConfig") == "true" {
		k.note("the original encrypts what etcd keeps: give the mirror a key of its own with kops " +
			"create secret encryptionconfig")
	}
	if splice.Text(k.spec, "networking", "cilium", "enableEncryption") == "true" &&
		splice.Text(k.spec, "networking", "cilium", "encryptionType") != "wireguard" {
		k.note("cilium encrypts: give the mirror a key of its own with kops create secret ciliumpassword")
	}
	k.note("no keys are copied: the mirror has its own authority, and kops create sshpublickey gives it an SSH key " +
		"where none is named by sshKeyName")
}

// surge lets a rolling update double the nodes before it takes the old ones away. The control plane cannot surge.
func (k *kopsJob) surge() {
	const why = "twice the nodes first, then the old ones scaled in"
	k.surgeIn(k.cluster, k.spec, why)
	for _, g := range k.groups {
		spec := splice.Get(g.Node, "spec")
		role := splice.Text(spec, "role")
		own := splice.Get(spec, "rollingUpdate", "maxSurge")
		if role != "Master" && role != "ControlPlane" && own != nil {
			k.surgeIn(g, spec, why+": the group has a setting of its own")
		}
	}
	k.note("groups of the control plane do not surge: they are replaced one by one")
}

func (k *kopsJob) surgeIn(o *object, spec *yaml.Node, why string) {
	if rolling := splice.Get(spec, "rollingUpdate"); rolling != nil && len(rolling.Content) > 0 {
		k.put(o, rolling, "maxSurge", "100%", "spec.rollingUpdate.maxSurge", why)
		return
	}
	k.put(o, spec, "rollingUpdate", "maxSurge: 100%", "spec.rollingUpdate", why)
}
