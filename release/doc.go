// Package release is the root of the module that makes images and releases of Theseus: cmd/theseus-release. It is a
// module of its own, so that the product does not depend on what only a release needs.
//
// A release is made of a commit, never of a work tree: the commit is checked out into a folder of its own, so that
// two people who release one commit with one version of Go get the same bytes.
//
//   - layer: the layers of images, which the lab uses too
//   - chart: the Helm chart of a release, packed
//   - internal/contents: which images there are, and the reason for every program in them
//   - internal/debian: packages of Debian, pinned in debian.lock
//   - internal/source: the commit that is released, and its Go programs
//   - internal/sbom, internal/oci, internal/bundle: the software bills of materials, the images, the archives
//   - internal/cli: the commands
package release
