// Package bundle holds what the writers of both stored kinds of models share:
// a folder that appears whole or not at all, the files of weights in it, and
// the specification that refers to them.
package bundle
