// Package debian provides packages of Debian for images: it pins them in a lock (Renew), fetches them by their
// checksums (Archive), and unpacks them (Unpack). The programs of Debian's own tools do the work: apt resolves and
// verifies signatures, dpkg-deb unpacks.
//
// Package contents lists what an image needs, and which of a package's programs it keeps.
package debian
