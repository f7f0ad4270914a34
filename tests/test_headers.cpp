// Empty: what is compiled here is the precompiled header that the tests share.
