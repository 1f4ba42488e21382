// Package origin evaluates the flags that a plan is made of for every node, and follows their source while the
// plan is carried out.
package origin
