// Package agentimage is where the image of the agent comes from: --agent-image or THESEUS_AGENT_IMAGE, or else the
// image that was published with this version of theseus, in the project's registry or in that of --image-registry.
//
// A release is linked with the digest of its image, so it cannot be replaced by another one. A build of
// `go install ...@VERSION` knows the image by that version. Any other build has none: its user names it.
package agentimage

import (
	"cmp"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/version"
)

// linked is the agent's image of a release, by its digest: NAME:VERSION@sha256:DIGEST. The linker sets it.
var linked string

// published is where the project's images are, without the version.
const published = "ghcr.io/theseus-cni/theseus-agent"

// imageVariable and registryVariable are the variables of the environment that give the flags' defaults.
const (
	imageVariable    = "THESEUS_AGENT_IMAGE"
	registryVariable = "THESEUS_IMAGE_REGISTRY"
)

// Flags name the agent's image.
type Flags struct{ image, registry string }

// Register adds the flags.
func (f *Flags) Register(flags *pflag.FlagSet) {
	flags.StringVar(&f.image, "agent-image", os.Getenv(imageVariable),
		"image of theseus-agent; empty: the one of this release")
	flags.StringVar(&f.registry, "image-registry", os.Getenv(registryVariable),
		"registry, and folder in it, that has the images of Theseus' releases, such as registry.example.com/mirror; "+
			"empty: "+published[:strings.LastIndex(published, "/")])
}

// Image is the agent's image; empty where none is named and this build has none.
func (f *Flags) Image() string { return Of(f.image, f.registry) }

// Of is the agent's image for the values of both flags; empty where none is named and this build has none.
func Of(image, registry string) string {
	return cmp.Or(image, In(registry, ofBuild(linked, version.Read().Version)))
}

// Must is the agent's image, or an error that says how to name one, with the command that was meant.
func (f *Flags) Must(command string) (string, error) {
	if image := f.Image(); image != "" {
		return image, nil
	}
	return "", exit.Fail(exit.Usage, command,
		"no image of the agent is named, and this build of theseus (%s) is no release, which would know its own",
		version.Read().Version)
}

// release matches the versions for which images are published.
var release = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// ofBuild is the image of a build; empty where the build is no release.
func ofBuild(linked, version string) string {
	switch {
	case linked != "":
		return linked
	case release.MatchString(version):
		return published + ":" + version
	}
	return ""
}

// In is an image under the name that it has in another registry. Its digest stays: a mirror has the same bytes.
func In(registry, image string) string {
	if registry == "" || image == "" {
		return image
	}
	name, _, _ := strings.Cut(image, "@")
	return strings.TrimSuffix(registry, "/") + image[strings.LastIndex(name, "/"):]
}
