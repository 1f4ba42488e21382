package cluster

import (
	"path"
	"strings"

	"github.com/distribution/reference"
)

// Image is a parsed container image name; all fields are empty if the text is not an image name.
type Image struct {
	Name string // with registry and repository, such as docker.io/library/nginx
	Base string // its last part, such as nginx
	Tag  string // empty if there is none
}

// ImageOf parses an image name. It ignores the digest, valid or not.
func ImageOf(text string) Image {
	text, _, _ = strings.Cut(text, "@")
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return Image{}
	}
	image := Image{Name: named.Name(), Base: path.Base(named.Name())}
	if tagged, ok := named.(reference.Tagged); ok {
		image.Tag = tagged.Tag()
	}
	return image
}
