package contents

import (
	"io/fs"
	"slices"

	"github.com/theseus-cni/theseus/release/layer"
)

// Image is an image of Theseus.
type Image struct {
	Name        string // the last part of its name in a registry
	Title       string
	Description string
	Command     string    // its program: the package cmd/COMMAND, and the entry point /COMMAND
	Programs    []Program // of Debian
	Data        []Data    // of Debian
	User        string    // who runs it; empty is root
	Files       []layer.File
}

// Program is a program in an image. What its package depends on comes with it.
type Program struct {
	Name    string
	Package string // of Debian
	Why     string
	Needs   []string // packages, instead of all that the package depends on
}

// Data is a package of which an image has the files, without the packages that it depends on.
type Data struct {
	Package string
	Why     string
}

// Images are all images. A new one is a line here.
func Images() []Image { return []Image{agent(), commandLine(), controller()} }

// Architectures are what images are made for.
func Architectures() []string { return []string{"amd64", "arm64"} }

func agent() Image {
	image := Image{
		Name:        "theseus-agent",
		Title:       "Theseus agent",
		Description: "The part of Theseus that runs on every node while a pod network is changed",
		Command:     "theseus-agent",
		Programs: []Program{
			{Name: "nft", Package: "nftables",
				Why: "reads and writes tables of nftables: the agent's own, and what networks and kube-proxy left"},
			{Name: "ipset", Package: "ipset", Why: "reads, copies and destroys the sets that rules of networks name"},
		},
		Files: base("root:x:0:0:root:/root:/usr/sbin/nologin\n", "root:x:0:\n"),
	}
	for _, kind := range []string{"nft", "legacy"} {
		for _, family := range []string{"iptables", "ip6tables"} {
			name := family + "-" + kind
			image.Programs = append(image.Programs,
				Program{Name: name, Package: "iptables",
					Why: "lists the chain POSTROUTING without reading the rest of a large table"},
				Program{Name: name + "-save", Package: "iptables",
					Why: "reads all rules of the " + kind + " form, in which kube-proxy or a network may have written"},
				Program{Name: name + "-restore", Package: "iptables",
					Why: "changes rules of the " + kind + " form, all or none"})
		}
	}
	return image
}

// nonroot is the user of images that need no rights of their own.
const nonroot = 65532

func commandLine() Image {
	return Image{
		Name:  "theseus",
		Title: "Theseus command line",
		Description: "Replaces or upgrades the pod network (CNI) of a live Kubernetes cluster, " +
			"and measures what it costs",
		Command: "theseus",
		Programs: []Program{{Name: "sh", Package: "dash", Why: "runs the shell lines of a plan with a second cluster",
			Needs: []string{"libc6"}}}, // the package wants dpkg too, to be installed
		Data:  []Data{{"ca-certificates", "the authorities of clouds, DNS providers and registries that Theseus asks"}},
		User:  "65532:65532",
		Files: unprivileged("/bin/sh"),
	}
}

// controller runs no programs: it refuses plans with commands.
func controller() Image {
	return Image{
		Name:        "theseus-controller",
		Title:       "Theseus controller",
		Description: "Runs approved plans of Theseus in the cluster whose pod network they change",
		Command:     "theseus-controller",
		Data:        []Data{{"ca-certificates", "the authorities of the registry that has the agent's image"}},
		User:        "65532:65532",
		Files:       unprivileged("/usr/sbin/nologin"),
	}
}

// unprivileged is base with the user nonroot.
func unprivileged(shell string) []layer.File {
	return append(base("root:x:0:0:root:/root:/usr/sbin/nologin\n"+
		"nonroot:x:65532:65532:nonroot:/home/nonroot:"+shell+"\n",
		"root:x:0:\nnonroot:x:65532:\n"),
		layer.File{Path: "/home/nonroot", Mode: 0o700 | fs.ModeDir, Owner: nonroot})
}

// base is what Debian's programs take for granted.
func base(users, groups string) []layer.File {
	return []layer.File{
		layer.Symlink("/bin", "usr/bin"),
		layer.Symlink("/sbin", "usr/sbin"),
		layer.Symlink("/lib", "usr/lib"),
		layer.Symlink("/lib64", "usr/lib64"),
		layer.Directory("/usr/bin", 0o755),
		layer.Directory("/usr/sbin", 0o755),
		layer.Directory("/usr/lib64", 0o755),
		layer.Directory("/run", 0o755),
		layer.Directory("/tmp", 0o777|fs.ModeSticky),
		layer.Directory("/root", 0o700),
		layer.Text("/etc/passwd", users),
		layer.Text("/etc/group", groups),
	}
}

// Packages are the packages of Debian that the image has together with what they depend on, and those that it has
// alone; in order, and once each.
func (i Image) Packages() (whole, alone []string) {
	add := func(list *[]string, name string) {
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	for _, p := range i.Programs {
		if p.Needs == nil {
			add(&whole, p.Package)
			continue
		}
		add(&alone, p.Package)
		for _, name := range p.Needs {
			add(&whole, name)
		}
	}
	for _, d := range i.Data {
		add(&alone, d.Package)
	}
	return whole, alone
}

// Names are the names of the image's programs.
func (i Image) Names() []string {
	var names []string
	for _, p := range i.Programs {
		names = append(names, p.Name)
	}
	return names
}
