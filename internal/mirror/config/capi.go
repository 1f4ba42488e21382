package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/theseus-cni/theseus/internal/mirror/splice"
)

const (
	capiGroup  = "cluster.x-k8s.io"
	capiSuffix = "." + capiGroup
	capiAdvice = "give all objects of the cluster: clusterctl move --to-directory, or kubectl get of its Cluster, " +
		"control plane, MachineDeployments, templates and infrastructure"
)

// capiJob is the conversion of a cluster of Cluster API.
type capiJob struct {
	*job
	cluster *object
	spec    *yaml.Node
	renamed map[string]string // "Kind name" to the new name
	here    map[string]bool   // "Kind name" of all that is in the files
}

func (j *job) capi(cluster *object) error {
	if err := j.only(cluster); err != nil {
		return err
	}
	c := &capiJob{job: j, cluster: cluster, spec: splice.Get(cluster.Node, "spec"),
		renamed: map[string]string{}, here: map[string]bool{}}
	if cluster.name == "" || c.spec == nil || c.spec.Kind != yaml.MappingNode || len(c.spec.Content) == 0 {
		return &splice.Error{File: cluster.file.Name, Line: cluster.Line,
			Err: fmt.Errorf("a Cluster without name or spec"), Advice: capiAdvice}
	}
	if j.Network != "" {
		if err := c.network(); err != nil {
			return err
		}
	}
	if j.Surge {
		if err := c.surge(); err != nil {
			return err
		}
	}
	if j.Name != "" {
		return c.mirror()
	}
	return nil
}

// ofController are the kinds that controllers make of others.
var ofController = []string{"Machine", "MachineSet", "KubeadmConfig", "ClusterResourceSetBinding"}

// shared are the kinds that serve more than one cluster.
var shared = []string{"ClusterClass", "ClusterResourceSet", "ConfigMap"}

func (c *capiJob) mirror() error {
	switch problems := validation.IsDNS1123Label(c.Name); {
	case len(problems) > 0:
		return &Usage{fmt.Errorf("--name %s: %s", c.Name, problems[0]), "such as --name green"}
	case c.Name == c.cluster.name:
		return &Usage{fmt.Errorf("the mirror would have the name of the original, %s", c.Name),
			"give it another with --name"}
	case c.State != "":
		return &Usage{fmt.Errorf("--state: only kops has a state store"), "leave it out"}
	}
	c.leave()
	c.names()
	if err := c.references(); err != nil {
		return err
	}
	for _, o := range c.objects {
		c.metadata(o)
	}
	c.endpoint()
	for _, o := range c.objects {
		if o.group == "infrastructure"+capiSuffix {
			c.infrastructure(o, splice.Get(o.Node, "spec"), "spec")
		}
	}
	if variables := splice.Get(c.spec, "topology", "variables"); variables != nil {
		c.infrastructure(c.cluster, variables, "spec.topology.variables")
	}
	for _, o := range c.objects {
		for _, path := range [][]string{{"spec", "kubeadmConfigSpec"}, {"spec", "template", "spec"},
			{"spec", "template", "spec", "kubeadmConfigSpec"}} {
			c.kubeadmSpec(o, splice.Get(o.Node, path...), strings.Join(path, "."))
		}
	}
	if err := c.podRanges(); err != nil {
		return err
	}
	if splice.Text(c.spec, "paused") == "true" {
		c.note("the Cluster is paused: nothing is made of the mirror until spec.paused is gone")
	}
	c.note("no Secrets are copied: Cluster API makes the mirror's keys")
	c.mentions(c.cluster.name, nil)
	return nil
}

// leave takes out what the mirror's controllers make, what is a key, and what both clusters use.
func (c *capiJob) leave() {
	for _, o := range slices.Clone(c.objects) {
		switch {
		case o.kind == "Secret":
			c.dropObject(o, "a key: keys are not copied")
		case slices.Contains(ofController, o.kind), strings.HasSuffix(o.kind, "Machine") &&
			strings.HasSuffix(o.group, capiSuffix):
			c.dropObject(o, "a controller makes it")
		case slices.Contains(shared, o.kind) || strings.HasSuffix(o.kind, "Template") && !c.ours(o.name):
			c.dropObject(o, "both clusters use it, as it does not bear the cluster's name")
		default:
			c.here[o.String()] = true
		}
	}
}

// ours says whether a name is the cluster's, or begins with it.
func (c *capiJob) ours(name string) bool {
	return name == c.cluster.name || strings.HasPrefix(name, c.cluster.name+"-")
}

// names gives every object its name on the mirror's side: one namespace may hold both.
func (c *capiJob) names() {
	for _, o := range c.objects {
		node := splice.Get(o.Node, "metadata", "name")
		if node == nil {
			continue
		}
		c.done[node] = true
		to := c.Name + strings.TrimPrefix(o.name, c.cluster.name)
		why := "named after the mirror"
		if !c.ours(o.name) {
			answer, ok := c.ask(o, node, "name/"+o.kind+"/"+o.name,
				fmt.Sprintf("%s does not bear the cluster's name: which name has the mirror's?", o), "VALUE")
			if !ok {
				continue
			}
			to, why = answer, "decided: the mirror's own"
		}
		c.renamed[o.String()] = to
		c.set(o, node, "metadata.name", to, why)
	}
}

// references lets what names an object of the files name the mirror's.
func (c *capiJob) references() error {
	for _, ref := range []string{"infrastructureRef", "controlPlaneRef"} {
		if node := splice.Get(c.spec, ref); node != nil &&
			!c.here[splice.Text(node, "kind")+" "+splice.Text(node, "name")] {
			return &splice.Error{File: c.cluster.file.Name, Line: node.Line,
				Err: fmt.Errorf("spec.%s names %s %s, which is not in the files",
					ref, splice.Text(node, "kind"), splice.Text(node, "name")), Advice: capiAdvice}
		}
	}
	for _, o := range c.objects {
		mappings(o.Node, "", func(node *yaml.Node, path string) {
			kind, name := splice.Text(node, "kind"), splice.Get(node, "name")
			if path == "" || kind == "" || name == nil || strings.HasPrefix(path, "metadata.") {
				return
			}
			if to, ok := c.renamed[kind+" "+name.Value]; ok {
				c.set(o, name, path+".name", to, "the mirror's own "+kind)
			} else if !c.here[kind+" "+name.Value] {
				c.done[name] = true
				c.note("both clusters use %s %s", kind, name.Value)
			}
		})
		scalars(o.Node, "", func(node *yaml.Node, path string, key bool) {
			if key || c.done[node] {
				return
			}
			if to, ok := c.renamed["MachineDeployment "+node.Value]; ok &&
				strings.HasSuffix(path, capiGroup+"/deployment-name") {
				c.set(o, node, path, to, "the MachineDeployment that it is of")
			}
			if node.Value != c.cluster.name {
				return
			}
			if strings.HasSuffix(path, capiGroup+"/cluster-name") || strings.HasSuffix(path, ".clusterName") {
				c.set(o, node, path, c.Name, "the cluster that it is of")
			}
		})
	}
	return nil
}

// mappings calls for every mapping below a node, with its path.
func mappings(node *yaml.Node, path string, call func(node *yaml.Node, path string)) {
	switch node.Kind {
	case yaml.MappingNode:
		call(node, path)
		for i := 0; i+1 < len(node.Content); i += 2 {
			mappings(node.Content[i+1], strings.TrimPrefix(path+"."+node.Content[i].Value, "."), call)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			mappings(item, fmt.Sprintf("%s.%d", path, i), call)
		}
	}
}

// metadata takes out what the API server and the controllers wrote.
func (c *capiJob) metadata(o *object) {
	meta := splice.Get(o.Node, "metadata")
	for _, key := range []string{"creationTimestamp", "generation", "resourceVersion", "uid", "managedFields",
		"ownerReferences", "finalizers", "selfLink"} {
		c.drop(o, meta, key, "metadata."+key, "the cluster writes it")
	}
	annotations := splice.Get(meta, "annotations")
	for _, key := range []string{"kubectl.kubernetes.io/last-applied-configuration",
		"machinedeployment.clusters.x-k8s.io/revision", "clusterctl.cluster.x-k8s.io/block-move"} {
		path, why := "metadata.annotations."+key, "it tells the past of the original's object"
		if keys := mappingKeys(orEmpty(annotations)); len(keys) == 1 && keys[0] == key {
			c.drop(o, meta, "annotations", path, why)
		} else {
			c.drop(o, annotations, key, path, why)
		}
	}
	c.drop(o, o.Node, "status", "status", "the cluster writes it")
}

// endpoint asks for the address of the mirror's API server.
func (c *capiJob) endpoint() {
	for _, o := range c.objects {
		spec := splice.Get(o.Node, "spec")
		host := splice.Get(spec, "controlPlaneEndpoint", "host")
		if host == nil || host.Value == "" {
			continue
		}
		c.done[host] = true
		answer, ok := c.ask(o, host, "controlPlaneEndpoint", "spec.controlPlaneEndpoint.host is "+host.Value+
			", the original's API server. drop: the infrastructure gives the mirror one, as clouds with load "+
			"balancers do", "drop", "VALUE")
		switch {
		case !ok:
		case answer == "drop":
			c.drop(o, spec, "controlPlaneEndpoint", "spec.controlPlaneEndpoint",
				"decided: the infrastructure gives the mirror one")
		default:
			c.set(o, host, "spec.controlPlaneEndpoint.host", answer, "decided: the mirror's API server")
		}
	}
}

// cloudID is what clouds name their things by.
var cloudID = regexp.MustCompile(
	`^((vpc|subnet|sg|igw|eigw|rtb|nat|eni|eipalloc|pcx|tgw|acl|i|vol|vpce)-[0-9a-f]{6,}|arn:[a-z-]+:.*|/subscriptions/.*|projects/.*/.*)$`)

// infrastructure asks about things and addresses of the original's place.
func (c *capiJob) infrastructure(o *object, node *yaml.Node, path string) {
	if node == nil {
		return
	}
	template := strings.HasSuffix(o.kind, "Template")
	foreign := func(value string) bool {
		_, prefix := netip.ParsePrefix(value)
		_, addr := netip.ParseAddr(value)
		return cloudID.MatchString(value) || !template && (prefix == nil || addr == nil)
	}
	mappings(node, path, func(node *yaml.Node, path string) {
		for _, key := range mappingKeys(node) {
			value := splice.Get(node, key)
			switch {
			case value == nil || c.done[value]:
			case value.Kind == yaml.ScalarNode && foreign(value.Value):
				c.outside(o, node, key, path+"."+key, "of the original's place: keep where the mirror shares it")
			case value.Kind == yaml.SequenceNode:
				c.outsideItems(o, node, key, path+"."+key, "of the original's place: keep where the mirror shares it",
					foreign)
			}
		}
	})
}

func mappingKeys(node *yaml.Node) []string {
	var keys []string
	for i := 0; i+1 < len(node.Content); i += 2 {
		keys = append(keys, node.Content[i].Value)
	}
	return keys
}

// podRanges asks whether pods of both clusters may have the same addresses.
func (c *capiJob) podRanges() error {
	network := splice.Get(c.spec, "clusterNetwork")
	if network == nil {
		return nil
	}
	joined, ok, err := c.choose(c.cluster, network, "peering", "are pods or Services of the two clusters routed to "+
		"each other, now or later (peering, BGP, a cluster mesh)?", "yes", "no")
	if err != nil || !ok || joined == "no" {
		return err
	}
	for _, what := range []string{"pods", "services"} {
		for i, node := range splice.Items(network, what, "cidrBlocks") {
			path := fmt.Sprintf("spec.clusterNetwork.%s.cidrBlocks.%d", what, i)
			if err := c.ownRange(c.cluster, node, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownRange asks for a range that does not overlap with the original's.
func (j *job) ownRange(o *object, node *yaml.Node, path string) error {
	j.done[node] = true
	answer, ok := j.ask(o, node, o.short(path), path+" is "+node.Value+": which range of its own has the mirror?",
		"CIDR")
	if !ok {
		return nil
	}
	old, err := netip.ParsePrefix(node.Value)
	if err != nil {
		return &splice.Error{File: o.file.Name, Line: node.Line, Err: fmt.Errorf("%s: %w", path, err),
			Advice: "correct it"}
	}
	prefix, err := netip.ParsePrefix(answer)
	if err != nil || prefix != prefix.Masked() || prefix.Overlaps(old) {
		return &Usage{fmt.Errorf("--answer %s=%s: no range, or one that overlaps with %s", o.short(path), answer, old),
			"give a range that is free, such as 10.64.0.0/16"}
	}
	j.set(o, node, path, answer, "decided: a range of its own")
	return nil
}

// networkNames are values of labels by which a network is chosen for a cluster.
var networkNames = []string{"antrea", "calico", "canal", "cilium", "flannel", "kindnet", "kube-router", "weave"}

// network changes the label by which ClusterResourceSets and the like choose a network. Cluster API itself knows none.
func (c *capiJob) network() error {
	labels := splice.Get(c.cluster.Node, "metadata", "labels")
	var found []string
	for _, key := range mappingKeys(orEmpty(labels)) {
		if slices.Contains(networkNames, splice.Text(labels, key)) {
			found = append(found, key)
		}
	}
	if len(found) != 1 {
		return &Usage{fmt.Errorf("Cluster %s has no label, or more than one, that "+
			"names its network, and Cluster API itself knows none", c.cluster.name),
			"leave --to out, and install the network as you installed the old one"}
	}
	node := splice.Get(labels, found[0])
	if node.Value == c.Network {
		return &Usage{fmt.Errorf("the network is %s already", c.Network), "leave --to out, or name another"}
	}
	if c.Name == "" {
		c.note("what the label %s=%s had installed stays until it is deleted, and every node must be replaced",
			found[0], node.Value)
	}
	c.note("something must install %s in clusters with the label %s=%s, such as a ClusterResourceSet",
		c.Network, found[0], c.Network)
	c.set(c.cluster, node, "metadata.labels."+found[0], c.Network, "the label by which the network is chosen")
	return nil
}

func orEmpty(node *yaml.Node) *yaml.Node {
	if node == nil {
		return &yaml.Node{}
	}
	return node
}

// surge lets MachineDeployments double their machines before the old ones go.
func (c *capiJob) surge() error {
	found := false
	for _, o := range c.objects {
		if o.kind != "MachineDeployment" || o.group != capiGroup {
			continue
		}
		found = true
		c.surgeIn(o, splice.Get(o.Node, "spec"), "spec")
	}
	for i, pool := range splice.Items(c.spec, "topology", "workers", "machineDeployments") {
		found = true
		c.surgeIn(c.cluster, pool, fmt.Sprintf("spec.topology.workers.machineDeployments.%d", i))
	}
	if !found {
		return &Usage{fmt.Errorf("no MachineDeployment that could surge"),
			"give the MachineDeployments too, or leave --surge out"}
	}
	c.note("the control plane is replaced one machine at a time: Cluster API lets it surge by one at most")
	return nil
}

func (c *capiJob) surgeIn(o *object, spec *yaml.Node, path string) {
	const why = "twice the machines first, then the old ones scaled in"
	// v1beta2 has the strategy under rollout.
	if !strings.HasPrefix(o.version, "v1alpha") && o.version != "v1beta1" {
		if rollout := splice.Get(spec, "rollout"); rollout != nil && len(rollout.Content) > 0 {
			spec, path = rollout, path+".rollout"
		} else {
			c.put(o, spec, "rollout", "strategy:\n  type: RollingUpdate\n  rollingUpdate:\n    maxSurge: 100%\n"+
				"    maxUnavailable: 0", path+".rollout", why)
			return
		}
	}
	strategy := splice.Get(spec, "strategy")
	rolling := splice.Get(strategy, "rollingUpdate")
	switch {
	case strategy == nil || len(strategy.Content) == 0:
		c.put(o, spec, "strategy", "type: RollingUpdate\nrollingUpdate:\n  maxSurge: 100%\n  maxUnavailable: 0",
			path+".strategy", why)
		return
	case rolling == nil || len(rolling.Content) == 0:
		c.put(o, strategy, "rollingUpdate", "maxSurge: 100%\nmaxUnavailable: 0", path+".strategy.rollingUpdate", why)
	default:
		// what is missing first: it is added next to one that still stands in the text
		for _, there := range []bool{false, true} {
			for _, want := range [][3]string{{"maxSurge", "100%", why},
				{"maxUnavailable", "0", "no old machine goes before the new ones are there"}} {
				if (splice.Get(rolling, want[0]) != nil) == there {
					c.put(o, rolling, want[0], want[1], path+".strategy.rollingUpdate."+want[0], want[2])
				}
			}
		}
	}
	if kind := splice.Text(strategy, "type"); kind != "" && kind != "RollingUpdate" {
		c.put(o, strategy, "type", "RollingUpdate", path+".strategy.type", why)
	}
}
