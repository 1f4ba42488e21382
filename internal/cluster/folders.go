package cluster

import (
	"path"
	"slices"
)

// The folders that container runtimes read by default.
const (
	DefaultConfFolder   = "/etc/cni/net.d"
	DefaultPluginFolder = "/opt/cni/bin"
)

// Folders are the folders from which a node's container runtime takes CNI configurations and plugins.
type Folders struct {
	// Conf is the folder of configurations. It is empty if it is unknown.
	Conf string `json:"conf,omitempty"`
	// Plugins are the folders of plugins, in the order in which the runtime searches them.
	Plugins []string `json:"plugins,omitempty"`
	// Links maps other names of these folders, by symbolic links of the node, to the names above.
	Links map[string]string `json:"links,omitempty"`
	// Handlers maps runtime handlers (RuntimeClasses) that take configurations from another folder to that folder.
	Handlers map[string]string `json:"handlers,omitempty"`
	// Source says where the agent read the folders.
	Source string `json:"source,omitempty"`
	// Problem says why the runtime did not tell them; the folders are then the defaults, or empty.
	Problem string `json:"problem,omitempty"`
}

// DefaultFolders are the documented defaults of container runtimes.
func DefaultFolders() Folders {
	return Folders{Conf: DefaultConfFolder, Plugins: []string{DefaultPluginFolder}}
}

// Reads reports whether the runtime takes configurations from a folder.
func (f *Folders) Reads(folder string) bool {
	folder = path.Clean(folder)
	return f.Conf != "" && (folder == f.Conf || f.Links[folder] == f.Conf)
}

// Searches reports whether the runtime takes plugins from a folder.
func (f *Folders) Searches(folder string) bool {
	folder = path.Clean(folder)
	return slices.Contains(f.Plugins, folder) || slices.Contains(f.Plugins, f.Links[folder])
}

// ConfFolder is the folder of CNI configurations for messages: the default, if an older agent reported.
func (f *NodeFacts) ConfFolder() string {
	if f.Folders == nil || f.Folders.Conf == "" {
		return DefaultConfFolder
	}
	return f.Folders.Conf
}
