// Which device code a device runs.
#include "dispatch/compiled_archs.hpp"

#include <gtest/gtest.h>

namespace fp8_sdpa::detail {
namespace {

TEST(CompiledArchs, MachineCodeServesItsMajorVersionFromItsMinorOn) {
  const CompiledArchs archs{"80-real,89-real"};
  EXPECT_EQ(archs.code_for(80), 80);
  EXPECT_EQ(archs.code_for(86), 80);
  EXPECT_EQ(archs.code_for(89), 89);
  EXPECT_EQ(archs.code_for(75), 0);
  EXPECT_EQ(archs.code_for(90), 0);
}

TEST(CompiledArchs, ArchitectureSpecificCodeServesThatVersionAlone) {
  EXPECT_EQ(CompiledArchs{"90a-real"}.code_for(90), 90);
  EXPECT_EQ(CompiledArchs{"90a-real"}.code_for(100), 0);
  EXPECT_EQ(CompiledArchs{"90a-virtual"}.code_for(100), 0);
}

TEST(CompiledArchs, FamilySpecificCodeServesItsFamily) {
  EXPECT_EQ(CompiledArchs{"100f-real"}.code_for(103), 100);
  EXPECT_EQ(CompiledArchs{"100f-real"}.code_for(90), 0);
}

TEST(CompiledArchs, PtxServesNewerDevicesWhereNoMachineCodeDoes) {
  const CompiledArchs archs{"80-real,80-virtual,89-virtual"};
  EXPECT_EQ(archs.code_for(80), 80);
  EXPECT_EQ(archs.code_for(89), 80) << "machine code goes before PTX, also older one";
  EXPECT_EQ(archs.code_for(90), 89);
}

TEST(CompiledArchs, PtxServesItsOwnVersionToo) {
  EXPECT_EQ(CompiledArchs{"89-virtual"}.code_for(89), 89);
  EXPECT_EQ(CompiledArchs{"89-virtual"}.code_for(88), 0);
}

TEST(CompiledArchs, NewerCodeGoesBeforeOlderInAnyOrder) {
  for (const char* list : {"80-real,86-real", "86-real,80-real"}) {
    EXPECT_EQ(CompiledArchs{list}.code_for(89), 86);
  }
  EXPECT_EQ(CompiledArchs{"89-virtual,80-virtual"}.code_for(90), 89);
}

TEST(CompiledArchs, NoCodeServesNothing) { EXPECT_EQ(CompiledArchs{""}.code_for(90), 0); }

}  // namespace
}  // namespace fp8_sdpa::detail
