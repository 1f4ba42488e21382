package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is where an OCI layout has the name and tag of an image.
const refName = "org.opencontainers.image.ref.name"

const schemeless = "name the registry without a scheme, as in registry.example.com/infra"

// Pushed is an image that a registry has now.
type Pushed struct {
	Image  string `json:"image"`
	Digest string `json:"digest"`
}

// Reference names the image by its digest too.
func (p Pushed) Reference() string { return p.Image + "@" + p.Digest }

// Push pushes every image of an OCI layout into a registry, or a folder of one, with this machine's own logins. Each
// keeps the name and tag that the layout says, and its digest. What was pushed before an error is returned with it.
func Push(ctx context.Context, folder, into string) ([]Pushed, error) {
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, notALayout(folder, err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, notALayout(folder, err)
	}
	if len(manifest.Manifests) == 0 {
		return nil, notALayout(folder, errors.New("it has no images"))
	}
	if strings.Contains(into, "://") {
		return nil, &Absent{into, "is not the name of a registry", schemeless, nil}
	}
	var pushed []Pushed
	for _, descriptor := range manifest.Manifests {
		named := descriptor.Annotations[refName]
		if named == "" {
			return pushed, notALayout(folder, fmt.Errorf("the image %s has no name", descriptor.Digest))
		}
		image := strings.TrimSuffix(into, "/") + "/" + named
		ref, err := name.NewTag(image)
		if err != nil {
			return pushed, &Absent{image, "is not the name of an image", schemeless, err}
		}
		if err := push(ctx, top, descriptor, ref); err != nil {
			return pushed, refused(ctx, image, ref, err)
		}
		pushed = append(pushed, Pushed{image, descriptor.Digest.String()})
	}
	return pushed, nil
}

// push pushes one image, or an index with all that is in it.
func push(ctx context.Context, top v1.ImageIndex, descriptor v1.Descriptor, to name.Tag) error {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	switch descriptor.MediaType {
	case types.OCIImageIndex, types.DockerManifestList:
		index, err := top.ImageIndex(descriptor.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(to, index, options...)
	}
	image, err := top.Image(descriptor.Digest)
	if err != nil {
		return err
	}
	return remote.Write(to, image, options...)
}

func notALayout(folder string, err error) error {
	why := "is not an OCI layout with images: " + err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		why = "is not an OCI layout: it has no index.json"
	}
	return &Absent{folder, why, "make one with make images, or unpack the one of a release", err}
}

// refused explains why an image was not pushed.
func refused(ctx context.Context, image string, ref name.Reference, err error) error {
	host := ref.Context().RegistryStr()
	switch status := statusOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &Absent{image, "may not be pushed: " + host + " requires another login", "log in on this machine: " +
			"docker " +
			"login " + host, err}
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return &Absent{image, "cannot be pushed: " + host + " accepts no images there",
			"name a folder that exists, as in registry.example.com/infra", err}
	}
	return unreached(image, "cannot be pushed", host, err)
}
