package cni

// MigrationLabels are labels of nodes by which a migration of another tool is known: Calico's own controller.
func MigrationLabels() []string {
	return []string{"projectcalico.org/node-network-during-migration", "projectcalico.org/node-flannel-migration-in-progress"}
}

// ConfigMaps are names of networks' ConfigMaps that not every agent mounts, and ConfigKinds kinds of their own objects: what a
// plan is made from, so that it is stale when one changes.
func ConfigMaps() []string { return []string{"calico-config", "cilium-config"} }

// ConfigKinds are kinds of networks' own objects that a plan is made from.
func ConfigKinds() []string { return []string{"IPPool", "FelixConfiguration", "CiliumNodeConfig"} }
