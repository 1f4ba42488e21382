// Package image is the command `theseus image` and those below it: the images of Theseus' own parts.
package image
