package cni

// MigrationLabels are node labels of other tools' migrations: those of Calico's own controller.
func MigrationLabels() []string {
	return []string{"projectcalico.org/node-network-during-migration",
		"projectcalico.org/node-flannel-migration-in-progress"}
}

// ConfigMaps are names of networks' ConfigMaps that plans depend on, although not every agent mounts them: a plan
// becomes stale if one changes.
func ConfigMaps() []string { return []string{"calico-config", "cilium-config"} }

// FromIPIP is how a Calico over IPIP comes to use VXLAN, which no plan does. The resource is that of its pools.
func FromIPIP(resource, pool string) string {
	return "let Calico's pool use VXLAN first, on all nodes at once, and measure what that costs: theseus guard -- " +
		"kubectl patch " + resource + " " + pool +
		` --type merge -p '{"spec": {"ipipMode": "Never", "vxlanMode": "Always"}}'; then plan again`
}

// ConfigKinds are kinds of networks' custom resources that plans depend on.
func ConfigKinds() []string { return []string{"IPPool", "FelixConfiguration", "CiliumNodeConfig"} }
