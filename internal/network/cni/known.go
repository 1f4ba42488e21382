package cni

// MigrationLabels are node labels of other tools' migrations: those of Calico's own controller.
func MigrationLabels() []string {
	return []string{"projectcalico.org/node-network-during-migration",
		"projectcalico.org/node-flannel-migration-in-progress"}
}

// ConfigMaps are names of networks' ConfigMaps that plans depend on, although not every agent mounts them: a plan
// becomes stale if one changes.
func ConfigMaps() []string { return []string{"calico-config", "cilium-config"} }

// ConfigKinds are kinds of networks' custom resources that plans depend on.
func ConfigKinds() []string { return []string{"IPPool", "FelixConfiguration", "CiliumNodeConfig"} }
